// Products of few rows by weights that stay codes, on tensor cores without stages: a block computes 16 outputs of up to 8 TILES rows, and
// its WARPS share the depth. The weights are the instruction's first operand. A lane reads 16 bytes of codes of two outputs, those of
// the first AHEAD parts of the depth before what the kernel waits for is done. A sum does not depend on the order of its depth: a lane
// takes neighbours of it, of both operands.
#pragma once
#include "codes_values.cuh"
#include "read_here.cuh"

struct CodesRowsParams {
    u32 rows;
    u32 columns;
    u32 depth;
    u32 scales;
    u32 constant;
};

template <class K> struct CodeRows {
    typedef typename K::CodesMma Mma;
    // Words of eight codes, and eights of a lane's vector.
    static constexpr u32 WORDS = 8u / K::CODES;
    static constexpr u32 EIGHTS = 4u / WORDS;
    // Elements of the depth of a lane's vector, of the four lanes that share it, and of a block.
    static constexpr u32 COUNT = 8u * EIGHTS;
    static constexpr u32 PART = 4u * COUNT;
    static constexpr u32 ROUND = PART * K::WARPS;
    // Registers of eight operands.
    static constexpr u32 VALUES = 2u * Mma::SIZE;
    // Scales of a vector.
    static constexpr u32 SCALES = K::ONE_PART ? 1u : EIGHTS;
    // Whether the four lanes that share a vector's part of the depth have one scale: then sums are scaled.
    static constexpr bool SCALE_SUMS = K::ALONG % PART == 0u;
    // Words from one row of sums to the next: lanes that write at once begin in different banks.
    static constexpr u32 PITCH = 20u;

    // A vector of codes of an output, with its scales and zero points.
    struct Codes {
        u32 words[4];
        u32 scale[SCALES];
        i32 zero[K::HAS_ZERO ? SCALES : 1u];

        // Reads those from `at` of the depth on; beyond its end, codes and scales of 0.
        DEV void read(const K& k, const CodesRowsParams& p, u32 output, u32 at) {
            const bool inside = at < p.depth;
            const u8* line = reinterpret_cast<const u8*>(k.bx1) + u64(output) * (p.depth / K::CODES * 4u);
            const uint4 four = inside ? read_here(line + at / K::CODES * 4u) : make_uint4(0u, 0u, 0u, 0u);
            words[0] = four.x;
            words[1] = four.y;
            words[2] = four.z;
            words[3] = four.w;
#pragma unroll
            for (u32 e = 0u; e < SCALES; e++) {
                const u32 part = output / K::ACROSS * p.scales + ::min(at + e * 8u, p.depth - 1u) / K::ALONG;
                scale[e] = inside ? bits_of(k.bx2[part]) : 0u;
                if constexpr (K::HAS_ZERO) {
                    zero[e] = inside ? k.zero_at(part) : 0;
                }
            }
        }

        // The operands of eight of them.
        DEV void operands(u32 (&to)[VALUES], u32 e) const {
            const u32 part = K::ONE_PART ? 0u : e;
            const i32 less = K::HAS_ZERO ? zero[K::HAS_ZERO ? part : 0u] : 0;
            u32 eight[WORDS];
#pragma unroll
            for (u32 w = 0u; w < WORDS; w++) {
                eight[w] = words[e * WORDS + w];
            }
            if constexpr (SCALE_SUMS) {
                CodeValues<K, Mma>::differences(to, eight, less);
            } else {
                CodeValues<K, Mma>::dequantize(to, eight, scale[part], less);
            }
        }

        // The scale of all of them.
        DEV f32 one_scale() const {
            if constexpr (Mma::SIZE == 4u) {
                return __uint_as_float(scale[0]);
            } else {
                return Pairs<Mma>::wide(scale[0]);
            }
        }
    };

    // Eight elements of a row.
    template <class Cell> DEV static void row(u32 (&to)[VALUES], const Cell* from) {
#pragma unroll
        for (u32 v = 0u; v < VALUES; v += 4u) {
            const uint4 four = reinterpret_cast<const uint4*>(from)[v / 4u];
            to[v] = Mma::operand(four.x);
            to[v + 1u] = Mma::operand(four.y);
            to[v + 2u] = Mma::operand(four.z);
            to[v + 3u] = Mma::operand(four.w);
        }
    }
};

template <class K> DEV void codes_rows(const K& k) {
    typedef CodeRows<K> C;
    __shared__ f32 sums[K::WARPS][K::TILES * 8u][C::PITCH];
    const auto& p = params<CodesRowsParams>(k);
    const u32 lane = threadIdx.x % 32u;
    const u32 warp = threadIdx.x / 32u;
    const u32 across = (p.columns + 15u) / 16u;
    const u32 column = blockIdx.x % across * 16u;
    const u32 first = blockIdx.x / across * K::TILES * 8u;
    const u32 own_depth = warp * C::PART + lane % 4u * C::COUNT;
    release();
    typename C::Codes own[K::AHEAD][2];
    const auto read = [&](u32 at) {
#pragma unroll
        for (u32 a = 0u; a < K::AHEAD; a++) {
#pragma unroll
            for (u32 o = 0u; o < 2u; o++) {
                // Outputs that are not there are the last one.
                const u32 output = ::min(column + o * 8u + lane / 4u, p.columns - 1u);
                own[a][o].read(k, p, output, at + a * C::ROUND + own_depth);
            }
        }
    };
    if (p.constant != 0u) {
        read(0u);
    }
    depend();
    if (p.constant == 0u) {
        read(0u);
    }
    f32 sum[K::TILES][4] = {};
    for (u32 at = 0u; at < p.depth; at += K::AHEAD * C::ROUND) {
#pragma unroll
        for (u32 a = 0u; a < K::AHEAD; a++) {
            const u32 from = at + a * C::ROUND + own_depth;
            f32 part[K::TILES][4] = {};
#pragma unroll
            for (u32 e = 0u; e < C::EIGHTS; e++) {
                u32 w[2][C::VALUES];
                own[a][0].operands(w[0], e);
                own[a][1].operands(w[1], e);
#pragma unroll
                for (u32 t = 0u; t < K::TILES; t++) {
                    // Rows that are not there are the last one; their sums are left out.
                    const u32 row = ::min(first + t * 8u + lane / 4u, p.rows - 1u);
                    u32 x[C::VALUES] = {};
                    if (from < p.depth) {
                        C::row(x, k.bx0 + u64(row) * p.depth + from + e * 8u);
                    }
#pragma unroll
                    for (u32 s = 0u; s < C::VALUES; s += 2u) {
                        const u32 weights[4] = {w[0][s], w[1][s], w[0][s + 1u], w[1][s + 1u]};
                        const u32 rows[2] = {x[s], x[s + 1u]};
                        C::Mma::product(C::SCALE_SUMS ? part[t] : sum[t], weights, rows);
                    }
                }
            }
            if constexpr (C::SCALE_SUMS) {
                const f32 scales[2] = {own[a][0].one_scale(), own[a][1].one_scale()};
#pragma unroll
                for (u32 t = 0u; t < K::TILES; t++) {
#pragma unroll
                    for (u32 q = 0u; q < 4u; q++) {
                        sum[t][q] = __fmaf_rn(part[t][q], scales[q / 2u], sum[t][q]);
                    }
                }
            }
        }
        if (at + K::AHEAD * C::ROUND < p.depth) {
            read(at + K::AHEAD * C::ROUND);
        }
    }
#pragma unroll
    for (u32 t = 0u; t < K::TILES; t++) {
#pragma unroll
        for (u32 q = 0u; q < 4u; q++) {
            sums[warp][t * 8u + lane % 4u * 2u + q % 2u][q / 2u * 8u + lane / 4u] = sum[t][q];
        }
    }
    __syncthreads();
    for (u32 e = threadIdx.x; e < K::TILES * 8u * 16u; e += K::WARPS * 32u) {
        const u32 row = first + e / 16u;
        const u32 at = column + e % 16u;
        f32 all = 0.0f;
#pragma unroll
        for (u32 w = 0u; w < K::WARPS; w++) {
            all += sums[w][e / 16u][e % 16u];
        }
        if (row < p.rows && at < p.columns) {
            k.emit0(row * p.columns + at, all);
        }
    }
}
