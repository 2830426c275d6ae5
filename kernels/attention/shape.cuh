// The shape of a block's work in attention, its parameters, and how rows are numbered.
//
// A block takes BM rows of one key head (queries of the first query head of its group, then of the second, ...) and BN keys at a
// time; WARPS_M x WARPS_K warps share rows and keys. Where all keys find room in shared memory, ALL_KEYS of them with those that
// fill up an instruction, they are copied at once. DQ and DV are the components of queries and values with those that fill up.
#pragma once
#include "../prelude/launch.cuh"

struct FlashParams {
    u32 batch;
    u32 heads;
    u32 kv_heads;
    u32 queries;
    u32 keys;
    u32 size;
    u32 value_size;
    u32 past;
    u32 mask_length;
    u32 mask_batch;
    u32 mask_head;
    u32 mask_query;
    u32 mask_key;
    f32 mask_scale;
    f32 power;
    f32 cap;
    f32 cap_scale;
    u32 whole;
    u32 q_offset;
    u32 q_batch;
    u32 q_head;
    u32 q_step;
    u32 k_offset;
    u32 k_batch;
    u32 k_head;
    u32 k_step;
    u32 v_offset;
    u32 v_batch;
    u32 v_head;
    u32 v_step;
    u32 past_k_offset;
    u32 past_k_batch;
    u32 past_k_head;
    u32 past_k_step;
    u32 past_v_offset;
    u32 past_v_batch;
    u32 past_v_head;
    u32 past_v_step;
    u32 y_batch;
    u32 y_head;
    u32 y_query;
    u32 parts;
    u32 part_keys;
    u32 mask_offset;
    f32 least;
    f32 hidden;
    u32 past_given;
    u32 share;
};

// Offsets of queries, keys and values are the numbers of their first heads in the maps where boxes are copied; `share` heads of queries
// read one of keys there.

// Bits of `whole`: what starts and ends at multiples of 16 bytes, as copies need it (q, k with the past, v with the past, results), and
// whether the mask's keys are neighbours, and in aligned pairs.
static constexpr u32 WHOLE_Q = 1u;
static constexpr u32 WHOLE_K = 2u;
static constexpr u32 WHOLE_V = 4u;
static constexpr u32 WHOLE_Y = 8u;
static constexpr u32 MASK_ROWS = 16u;
static constexpr u32 MASK_PAIRS = 32u;

static constexpr u32 MINUS_INFINITY = 0xff800000u;

extern __shared__ __align__(128) u8 block_memory[];

template <class K> struct Shape {
    // An element in memory.
    typedef typename K::Cell Cell;
    static constexpr u32 SIZE = u32(sizeof(Cell));
    static constexpr u32 PER_COPY = 16u / SIZE;
    // Elements that one instruction takes of the depth.
    static constexpr u32 STEP = 32u / SIZE;
    // Tiles of 16 rows, keys, and tiles of 8 keys of a warp.
    static constexpr u32 MI = K::BM / K::WARPS_M / 16u;
    static constexpr u32 WK = K::BN / K::WARPS_K;
    static constexpr u32 NJ = WK / 8u;
    static constexpr u32 THREADS = K::WARPS_M * K::WARPS_K * 32u;
    // Threads that copy: those of a warpgroup of its own behind the others, or all.
    static constexpr u32 COPIERS = K::SWIZZLED ? 128u : THREADS;
    DEV static u32 copier() { return K::SWIZZLED ? threadIdx.x - THREADS : threadIdx.x; }

    // Waits for all threads that compute.
    DEV static void meet() {
        if constexpr (K::SWIZZLED) {
            asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
        } else {
            __syncthreads();
        }
    }

    // Bytes of a line of queries or keys, and of values.
    static constexpr u32 PITCH_K = K::DQ * SIZE + 16u;
    static constexpr u32 PITCH_V = K::DV * SIZE + 16u;
    // Where chunk `chunk` of 16 bytes of a line lies among LINES lines of DEPTH elements. SWIZZLED, as wgmma reads them: boxes of 128
    // bytes of all lines one after the other, the chunks of a line in the order of the line's number.
    template <u32 LINES, u32 DEPTH> DEV static u32 place(u32 line, u32 chunk) {
        if constexpr (K::SWIZZLED) {
            return chunk / 8u * (LINES * 128u) + line * 128u + (chunk % 8u ^ line % 8u) * 16u;
        } else {
            return line * (DEPTH * SIZE + 16u) + chunk * 16u;
        }
    }

    // Queries stay in registers if they are few.
    static constexpr bool KEPT = MI * K::DQ * SIZE <= 256u;
    // Floats of a row of results in shared memory.
    static constexpr u32 WIDE = K::DV + 4u;
    // Keys of a stage.
    static constexpr u32 LINES = K::ALL_KEYS > 0u ? K::ALL_KEYS : K::BN;
    // Whether a warp can put its results where its queries were.
    static constexpr bool OWN_ROWS = K::WARPS_K == 1u && !K::SPLIT && PITCH_V <= PITCH_K;

    // Registers of a thread: scores, sums of weighted values, a number and a position for each row, and queries.
    typedef f32 Scores[MI][NJ][4];
    typedef f32 Sums[MI][K::DV / 8u][4];
    typedef f32 OfRows[MI][2];
    typedef u32 Rows[MI][2];
    typedef u32 Queries[MI][4];
    typedef Queries Kept[KEPT ? K::DQ / STEP : 1u];

    DEV static u8* keys_of(u32 stage) { return block_memory + K::BM * PITCH_K + stage * LINES * (PITCH_K + PITCH_V); }
    DEV static u8* values_of(u32 stage) { return keys_of(stage) + LINES * PITCH_K; }
};

// The head among those of a group, and the query, of a row.
template <class K> DEV u32 head_of(const FlashParams& p, u32 row) { return K::GROUPED ? row / p.queries : 0u; }
template <class K> DEV u32 query_of(const FlashParams& p, u32 row) { return K::GROUPED ? row % p.queries : row; }

// Query heads of a key head.
template <class K> DEV u32 group_size(const FlashParams& p) { return K::GROUPED ? p.heads / p.kv_heads : 1u; }

// A row of the result.
template <class K> DEV u32 result_row(const FlashParams& p, u32 b, u32 kv, u32 row) {
    const u32 head = kv * group_size<K>(p) + head_of<K>(p, row);
    return b * p.y_batch + head * p.y_head + query_of<K>(p, row) * p.y_query;
}
