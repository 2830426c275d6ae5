// Scores of queries and keys: products, masks, caps, and how they become weights of values. Scores are in units of log2(e) once they
// are scaled.
#pragma once
#include "instructions.cuh"

// Whether the mask is applied to scores, instead of being what they begin with.
template <class K> static constexpr bool LATE = K::HIDES || K::CAPPED || K::SWIZZLED;

// The queries of a warp from line `row` and component `at` on.
template <class K> DEV void queries_at(typename Shape<K>::Queries& f, u32 row, u32 at) {
    typedef Shape<K> T;
    const u32 lane = threadIdx.x % 32u;
#pragma unroll
    for (u32 i = 0u; i < T::MI; i++) {
        matrices<K>(f[i], block_memory + (row + i * 16u + lane % 16u) * T::PITCH_K + at * T::SIZE + lane / 16u * 16u);
    }
}

// s += queries x keys, KEYS of them, of which the first `live` count at an EDGE.
template <class K, bool EDGE, u32 KEYS>
DEV void score(typename Shape<K>::Scores& s, const typename Shape<K>::Kept& kept, const u8* keys, u32 row, u32 live) {
    typedef Shape<K> T;
    const u32 lane = threadIdx.x % 32u;
    const u8* at = keys + (lane / 16u * 8u + lane % 8u) * T::PITCH_K + lane / 8u % 2u * 16u;
#pragma unroll
    for (u32 d = 0u; d < K::DQ / T::STEP; d++) {
        typename T::Queries own;
        if constexpr (T::KEPT) {
#pragma unroll
            for (u32 e = 0u; e < T::MI * 4u; e++) {
                own[e / 4u][e % 4u] = kept[d][e / 4u][e % 4u];
            }
        } else {
            queries_at<K>(own, row, d * T::STEP);
        }
#pragma unroll
        for (u32 j = 0u; j < KEYS / 8u; j += 2u) {
            if (EDGE && j * 8u >= live) {
                continue;
            }
            u32 f[4];
            matrices<K>(f, at + j * 8u * T::PITCH_K + d * 32u);
#pragma unroll
            for (u32 i = 0u; i < T::MI; i++) {
                product<K>(s[i][j], own[i], f[0], f[1]);
                product<K>(s[i][j + 1u], own[i], f[2], f[3]);
            }
        }
    }
}

// Applies an element of the mask to a score. Finite numbers stay finite in the units of powers of 2, so that rows of them alone
// are means.
template <class K> DEV void put_mask(const K& k, const FlashParams& p, f32& s, typename K::MaskCell x) {
    if constexpr (K::BOOL_MASK) {
        s = x == 0 ? (K::HIDES ? p.hidden : cf(MINUS_INFINITY)) : (LATE<K> ? s : 0.0f);
    } else {
        const f32 by = k.mask_value(x) * p.mask_scale;
        const f32 added = K::MASK_WIDE && by < p.least && k.mask_value(x) != cf(MINUS_INFINITY) ? p.least : by;
        s = LATE<K> ? s + added : added;
    }
}

// Pairs of the mask that a thread reads before its scores are there: of narrow masks whose keys are neighbours in aligned pairs. Of a
// MASK_OF_KEYS, both rows of a thread have the same.
template <class K, bool HAS = K::MASK> struct SoonMask {
    static constexpr bool SOON = false;
    DEV void read(const K&, const FlashParams&, const typename Shape<K>::Rows&, u32, u32) {}
};
template <class K> struct SoonMask<K, true> {
    typedef Shape<K> T;
    static constexpr u32 LINES = K::MASK_OF_KEYS ? 1u : 2u;
    static constexpr bool SOON = K::SWIZZLED && sizeof(typename K::MaskCell) <= 2u && K::DV <= 128u && K::BN * LINES <= 128u;
    struct alignas(2 * sizeof(typename K::MaskCell)) Pair {
        typename K::MaskCell a, b;
    };
    Pair pairs[SOON ? T::MI : 1u][LINES][SOON ? T::NJ : 1u];
    bool there;

    // Reads those of the keys from j0 on, if all are there.
    DEV void read(const K& k, const FlashParams& p, const typename T::Rows& mask_at, u32 j0, u32 last) {
        there = false;
        if constexpr (SOON) {
            there = j0 + T::WK <= ::min(last, p.mask_length) && (p.whole & MASK_ROWS) != 0u && (p.whole & MASK_PAIRS) != 0u;
            if (there) {
#pragma unroll
                for (u32 i = 0u; i < T::MI; i++) {
#pragma unroll
                    for (u32 h = 0u; h < LINES; h++) {
                        const typename K::MaskCell* row = k.bx3 + mask_at[i][h] + j0 + threadIdx.x % 4u * 2u;
#pragma unroll
                        for (u32 j = 0u; j < T::NJ; j++) {
                            pairs[i][h][j] = *reinterpret_cast<const Pair*>(row + j * 8u);
                        }
                    }
                }
            }
        }
    }

    // Applies what was read; false where nothing was.
    DEV bool put(const K& k, const FlashParams& p, typename T::Scores& s) const {
        if constexpr (SOON) {
            if (there) {
#pragma unroll
                for (u32 i = 0u; i < T::MI; i++) {
#pragma unroll
                    for (u32 h = 0u; h < 2u; h++) {
#pragma unroll
                        for (u32 j = 0u; j < T::NJ; j++) {
                            put_mask(k, p, s[i][j][2u * h], pairs[i][h % LINES][j].a);
                            put_mask(k, p, s[i][j][2u * h + 1u], pairs[i][h % LINES][j].b);
                        }
                    }
                }
            }
        }
        return there;
    }
};

// Applies the mask in the units of the scores: scores begin with it, unless it comes LATE.
template <class K>
DEV void add_mask(const K& k, const FlashParams& p, typename Shape<K>::Scores& s, const typename Shape<K>::Rows& mask_at, u32 j0, u32 last) {
    if constexpr (K::MASK) {
        typedef Shape<K> T;
        typedef typename K::MaskCell MaskCell;
        struct alignas(2 * sizeof(MaskCell)) Pair {
            MaskCell a, b;
        };
        const u32 end = ::min(last, p.mask_length);
        const u32 col = j0 + threadIdx.x % 4u * 2u;
        const bool inside = j0 + T::WK <= end && (p.whole & MASK_ROWS) != 0u;
        const bool pairs = inside && (p.whole & MASK_PAIRS) != 0u;
#pragma unroll
        for (u32 i = 0u; i < T::MI; i++) {
#pragma unroll
            for (u32 h = 0u; h < 2u; h++) {
                const MaskCell* row = k.bx3 + mask_at[i][h] + (inside ? col : 0u);
                if (pairs) {
#pragma unroll
                    for (u32 j = 0u; j < T::NJ; j++) {
                        const Pair x = *reinterpret_cast<const Pair*>(row + j * 8u);
                        put_mask(k, p, s[i][j][2u * h], x.a);
                        put_mask(k, p, s[i][j][2u * h + 1u], x.b);
                    }
                } else if (inside) {
#pragma unroll
                    for (u32 j = 0u; j < T::NJ; j++) {
                        put_mask(k, p, s[i][j][2u * h], row[j * 8u]);
                        put_mask(k, p, s[i][j][2u * h + 1u], row[j * 8u + 1u]);
                    }
                } else {
#pragma unroll
                    for (u32 j = 0u; j < T::NJ; j++) {
#pragma unroll
                        for (u32 r = 0u; r < 2u; r++) {
                            const u32 at = col + j * 8u + r;
                            if (at < end) {
                                put_mask(k, p, s[i][j][2u * h + r], row[u64(at) * p.mask_key]);
                            }
                        }
                    }
                }
            }
        }
    }
}

// Applies the cap.
template <class K> DEV void cap_scores(const FlashParams& p, typename Shape<K>::Scores& s) {
    typedef Shape<K> T;
    if constexpr (K::CAPPED) {
        const f32 cap = p.cap;
        const f32 by = p.cap_scale;
#pragma unroll
        for (u32 i = 0u; i < T::MI; i++) {
#pragma unroll
            for (u32 j = 0u; j < T::NJ; j++) {
#pragma unroll
                for (u32 r = 0u; r < 4u; r++) {
                    s[i][j][r] = cap * tanhf(s[i][j][r] * by);
                }
            }
        }
    }
}

// Finishes scores after their products: applies the cap, and the mask if it is LATE.
template <class K>
DEV void finish_scores(const K& k, const FlashParams& p, typename Shape<K>::Scores& s, const typename Shape<K>::Rows& mask_at, u32 j0, u32 last) {
    cap_scores<K>(p, s);
    if constexpr (LATE<K>) {
        add_mask(k, p, s, mask_at, j0, last);
    }
}

// Takes keys out that are beyond `valid` or `last`, or later than a row sees: their scores are minus infinity.
template <class K, u32 KEYS>
DEV void exclude(typename Shape<K>::Scores& s, const typename Shape<K>::Rows& sees, u32 j0, u32 valid, u32 last) {
#pragma unroll
    for (u32 i = 0u; i < Shape<K>::MI; i++) {
#pragma unroll
        for (u32 j = 0u; j < KEYS / 8u; j++) {
            if ((K::ALL_KEYS > 0u || K::AT_ONCE) && !K::CAUSAL && j0 + j * 8u + 8u <= ::min(valid, last)) {
                continue;
            }
#pragma unroll
            for (u32 r = 0u; r < 4u; r++) {
                const u32 at = j0 + j * 8u + threadIdx.x % 4u * 2u + r % 2u;
                if (at >= ::min(valid, last) || (K::CAUSAL && at > sees[i][r / 2u])) {
                    s[i][j][r] = cf(MINUS_INFINITY);
                }
            }
        }
    }
}

// Scores of KEYS keys to weights under a new maximum; what there is of sums and results is to be scaled by `less`. Scores that may be far
// from 0 are rounded as the maximum is, so that the weight of the greatest is 1.
template <class K, u32 KEYS>
DEV void soften_scores(typename Shape<K>::Scores& s, typename Shape<K>::OfRows& less, typename Shape<K>::OfRows& top, typename Shape<K>::OfRows& sum,
                       f32 c) {
    constexpr bool FAR = K::MASK_WIDE || K::HIDES;
#pragma unroll
    for (u32 i = 0u; i < Shape<K>::MI; i++) {
#pragma unroll
        for (u32 h = 0u; h < 2u; h++) {
            f32 most = cf(MINUS_INFINITY);
#pragma unroll
            for (u32 j = 0u; j < KEYS / 8u; j++) {
                most = fmaxf(most, fmaxf(s[i][j][2u * h], s[i][j][2u * h + 1u]));
            }
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
            most = fmaxf(top[i][h], most * c);
            const f32 base = most == cf(MINUS_INFINITY) ? 0.0f : most;
            less[i][h] = power_of_two(top[i][h] - base);
            top[i][h] = most;
            f32 all = 0.0f;
#pragma unroll
            for (u32 j = 0u; j < KEYS / 8u; j++) {
#pragma unroll
                for (u32 r = 2u * h; r < 2u * h + 2u; r++) {
                    s[i][j][r] = power_of_two(FAR ? __fmul_rn(s[i][j][r], c) - base : __fmaf_rn(s[i][j][r], c, -base));
                    all += s[i][j][r];
                }
            }
            sum[i][h] = __fmaf_rn(sum[i][h], less[i][h], all);
        }
    }
}

// Scales results down to a new maximum.
template <class K> DEV void scale_down(typename Shape<K>::Sums& o, const typename Shape<K>::OfRows& less) {
#pragma unroll
    for (u32 i = 0u; i < Shape<K>::MI; i++) {
#pragma unroll
        for (u32 n = 0u; n < K::DV / 8; n++) {
#pragma unroll
            for (u32 r = 0u; r < 4u; r++) {
                o[i][n][r] *= less[i][r / 2u];
            }
        }
    }
}

// Scores to weights, and results scaled down to their maximum.
template <class K, u32 KEYS>
DEV void soften(typename Shape<K>::Scores& s, typename Shape<K>::Sums& o, typename Shape<K>::OfRows& top, typename Shape<K>::OfRows& sum, f32 c) {
    typename Shape<K>::OfRows less;
    soften_scores<K, KEYS>(s, less, top, sum, c);
    scale_down<K>(o, less);
}

// o += weights x values, for KEYS keys of a warp, of which the first `live` count at an EDGE. Which key goes where in the depth of an
// instruction of TF32 is free, so that sums are operands as they are: the keys 2t and 2t + 1 of thread t are its k = t and t + 4.
template <class K, bool EDGE, u32 KEYS>
DEV void weigh(typename Shape<K>::Sums& o, const typename Shape<K>::Scores& s, const u8* values, u32 live) {
    typedef Shape<K> T;
    const u32 lane = threadIdx.x % 32u;
    if constexpr (T::SIZE == 4u) {
#pragma unroll
        for (u32 j = 0u; j < KEYS / 8u; j++) {
            if (EDGE && j * 8u >= live) {
                continue;
            }
            u32 a[T::MI][4];
#pragma unroll
            for (u32 i = 0u; i < T::MI; i++) {
#pragma unroll
                for (u32 r = 0u; r < 4u; r++) {
                    a[i][r] = operand<K>(__float_as_uint(s[i][j][r % 2u * 2u + r / 2u]));
                }
            }
            const u8* at = values + (j * 8u + lane % 4u * 2u) * T::PITCH_V + lane / 4u * T::SIZE;
#pragma unroll
            for (u32 n = 0u; n < K::DV / 8; n++) {
                const u32 b0 = operand<K>(*reinterpret_cast<const u32*>(at + n * 8u * T::SIZE));
                const u32 b1 = operand<K>(*reinterpret_cast<const u32*>(at + n * 8u * T::SIZE + T::PITCH_V));
#pragma unroll
                for (u32 i = 0u; i < T::MI; i++) {
                    product<K>(o[i][n], a[i], b0, b1);
                }
            }
        }
    } else {
#pragma unroll
        for (u32 j = 0u; j < KEYS / 16u; j++) {
            if (EDGE && j * 16u >= live) {
                continue;
            }
            u32 a[T::MI][4];
#pragma unroll
            for (u32 i = 0u; i < T::MI; i++) {
#pragma unroll
                for (u32 r = 0u; r < 4u; r++) {
                    const f32* at = s[i][2u * j + r / 2u] + r % 2u * 2u;
                    a[i][r] = pair<K>(at[0], at[1]);
                }
            }
#pragma unroll
            for (u32 n = 0u; n < K::DV / 16; n++) {
                u32 f[4];
                transposed(f, values + (j * 16u + lane % 16u) * T::PITCH_V + (n * 16u + lane / 16u * 8u) * T::SIZE);
#pragma unroll
                for (u32 i = 0u; i < T::MI; i++) {
                    product<K>(o[i][2u * n], a[i], f[0], f[1]);
                    product<K>(o[i][2u * n + 1u], a[i], f[2], f[3]);
                }
            }
        }
    }
}
