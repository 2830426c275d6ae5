// Exchange of sums between the blocks of a cluster that share the depth of a tile: each block sends to every other one its sums of the
// chunks that the other one stores. A thread adds sums of the thread of its number, as lanes have the same places in all blocks.
#pragma once
#include "tiles.cuh"

template <class Tile> struct Exchange {
    typedef WgmmaTiles<Tile> T;
    typedef typename T::Sum Sum;

    // Four sums of this thread of chunk `n` of a share.
    DEV static u32 place(u32 n, u32 four) {
        const u32 group = threadIdx.x / 128u;
        return ((group * T::OWN_CHUNKS + n) * 4u + four) * 2048u + threadIdx.x % 128u * 16u;
    }

    // Sends the sums of all chunks but those of block `part`, which this one is.
    DEV static void send(const typename T::Sums& sum, u32 part) {
#pragma unroll
        for (u32 to = 0u; to < Tile::SPLIT; to++) {
            if (to == part) {
                continue;
            }
            const u32 block = to * T::CLUSTER + T::rank();
            const u32 share = address_in(T::shares_at() + (part < to ? part : part - 1u) * T::BYTES_SHARE, block);
            const u32 barrier = address_in(T::received(), block);
#pragma unroll
            for (u32 n = 0u; n < T::OWN_CHUNKS; n++) {
                const u32 chunk = to * T::OWN_CHUNKS + n;
#pragma unroll
                for (u32 four = 0u; four < 4u; four++) {
                    u32 v[4];
#pragma unroll
                    for (u32 i = 0u; i < 4u; i++) {
                        v[i] = bitcast<u32>(sum[chunk / T::CHUNKS][chunk % T::CHUNKS * 16u + four * 4u + i]);
                    }
                    send16(share + place(n, four), v, barrier);
                }
            }
        }
    }

    // Adds the sums that other blocks have sent of chunk `n` of the share of this one.
    DEV static void add(Sum (&own)[16], u32 n) {
        const u8* const shares = block_memory + (T::shares_at() - address(block_memory));
#pragma unroll
        for (u32 other = 0u; other < Tile::SPLIT - 1u; other++) {
#pragma unroll
            for (u32 four = 0u; four < 4u; four++) {
                const auto sums = Pack<Sum>::of(reinterpret_cast<const Sum*>(shares + other * T::BYTES_SHARE + place(n, four)));
#pragma unroll
                for (u32 i = 0u; i < 4u; i++) {
                    own[four * 4u + i] += sums.v[i];
                }
            }
        }
    }
};
