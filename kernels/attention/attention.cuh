// Attention: scores, softmax and weighted sum, one pass each, with the weights in scratch memory.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

struct AttentionParams {
    u32 size;
    u32 v_size;
    u32 keys;
    u32 queries;
    u32 q_heads;
    u32 kv_heads;
    u32 batch;
    u32 past;
    u32 flat;
    u32 causal;
    f32 scale;
    f32 cap;
    u32 mask_keys;
    u32 mask_offset;
    u32 mask_batch;
    u32 mask_head;
    u32 mask_query;
    u32 mask_key;
    u32 q_offset;
    u32 q_batch;
    u32 q_head;
    u32 q_position;
    u32 k_offset;
    u32 k_batch;
    u32 k_head;
    u32 k_position;
    u32 v_offset;
    u32 v_batch;
    u32 v_head;
    u32 v_position;
    u32 past_k_offset;
    u32 past_k_batch;
    u32 past_k_head;
    u32 past_k_position;
    u32 past_v_offset;
    u32 past_v_batch;
    u32 past_v_head;
    u32 past_v_position;
};

// Component d of position s of head h of the result: heads before positions, or behind them in flat inputs.
DEV u32 place(const AttentionParams& p, u32 b, u32 h, u32 s, u32 d) {
    if (p.flat != 0u) {
        return ((b * p.queries + s) * p.q_heads + h) * p.v_size + d;
    }
    return ((b * p.q_heads + h) * p.queries + s) * p.v_size + d;
}

template <class K> DEV f32 key(const K& k, const AttentionParams& p, u32 b, u32 h, u32 j, u32 d) {
    if constexpr (K::HAS_PAST) {
        if (j < p.past) {
            return k.x4(p.past_k_offset + b * p.past_k_batch + h * p.past_k_head + j * p.past_k_position + d);
        }
    }
    return k.x1(p.k_offset + b * p.k_batch + h * p.k_head + (j - p.past) * p.k_position + d);
}

template <class K> DEV f32 value(const K& k, const AttentionParams& p, u32 b, u32 h, u32 j, u32 d) {
    if constexpr (K::HAS_PAST) {
        if (j < p.past) {
            return k.x5(p.past_v_offset + b * p.past_v_batch + h * p.past_v_head + j * p.past_v_position + d);
        }
    }
    return k.x2(p.v_offset + b * p.v_batch + h * p.v_head + (j - p.past) * p.v_position + d);
}

template <class K> DEV f32 product(const K& k, const AttentionParams& p, u32 b, u32 h, u32 i, u32 j) {
    f32 sum = 0.0f;
    const u32 kv = h * p.kv_heads / p.q_heads;
    for (u32 d = 0u; d < p.size; d++) {
        mac(sum, k.x0(p.q_offset + b * p.q_batch + h * p.q_head + i * p.q_position + d), key(k, p, b, kv, j, d));
    }
    return sum * p.scale;
}

// Keys of batch entry b that count, where lengths are given (`K::HAS_LENGTHS`).
template <class K> DEV i32 length(const K& k, u32 b) { return max(k.near6(b), 0); }

// The bias that is added to a score; minus infinity for keys that take no part.
template <class K> DEV f32 bias(const K& k, const AttentionParams& p, u32 b, u32 h, u32 i, u32 j) {
    const f32 out = cf(0xff800000u);
    // Position of the query among the keys.
    i32 own = i32(i + p.past);
    if constexpr (K::HAS_LENGTHS) {
        own = length(k, b) + (i32(i) - i32(p.queries));
    }
    if (p.causal != 0u && i32(j) > own) {
        return out;
    }
    if (K::LEFT >= 0 && own - i32(j) > K::LEFT) {
        return out;
    }
    if (K::RIGHT >= 0 && i32(j) - own > K::RIGHT) {
        return out;
    }
    if constexpr (K::HAS_LENGTHS) {
        if (j >= u32(length(k, b))) {
            return out;
        }
    }
    if constexpr (K::HAS_MASK) {
        if (j >= p.mask_keys) {
            return out;
        }
        return k.masked(p.mask_offset + b * p.mask_batch + h * p.mask_head + i * p.mask_query + j * p.mask_key);
    }
    return 0.0f;
}

DEV f32 capped(const AttentionParams& p, f32 x) {
    if (p.cap > 0.0f) {
        return p.cap * ktanh(x / p.cap);
    }
    return x;
}

// A score with its cap and bias; a key that takes no part has minus infinity whatever its product is.
template <class K> DEV f32 score(const K& k, const AttentionParams& p, u32 b, u32 h, u32 i, u32 j) {
    const f32 added = bias(k, p, b, h, i, j);
    if (is_inf(added) && added < 0.0f) {
        return added;
    }
    // Only what is hidden behind a number has a bias above 0.
    if (K::HIDES && added > 0.0f) {
        return cf(K::HIDDEN);
    }
    return capped(p, product(k, p, b, h, i, j)) + added;
}

// A thread a score.
template <class K> DEV void scores(const K& k, u32 t) {
    const auto& p = params<AttentionParams>(k);
    const u32 j = t % p.keys;
    const u32 i = t / p.keys % p.queries;
    const u32 h = t / p.keys / p.queries % p.q_heads;
    const u32 b = t / p.keys / p.queries / p.q_heads;
    k.scratch[t] = bitcast<u32>(score(k, p, b, h, i, j));
}

// A thread a row of scores.
template <class K> DEV void weigh(const K& k, u32 t) {
    const u32 n = params<AttentionParams>(k).keys;
    f32 top = cf(0xff800000u);
    for (u32 j = 0u; j < n; j++) {
        top = kmax(top, bitcast<f32>(k.scratch[t * n + j]));
    }
    const bool none = is_inf(top) && top < 0.0f;
    f32 sum = 0.0f;
    for (u32 j = 0u; j < n; j++) {
        const f32 e = kexp(bitcast<f32>(k.scratch[t * n + j]) - top);
        k.scratch[t * n + j] = bitcast<u32>(e);
        sum += e;
    }
    for (u32 j = 0u; j < n; j++) {
        const f32 w = bitcast<f32>(k.scratch[t * n + j]) / sum;
        const bool empty = none || (K::ZERO_NAN && is_nan(w));
        k.scratch[t * n + j] = empty ? (K::ZERO_EMPTY ? 0u : 0x7fc00000u) : bitcast<u32>(w);
    }
}

// A thread a component of the result.
template <class K> DEV void mix(const K& k, u32 t) {
    const auto& p = params<AttentionParams>(k);
    const u32 d = t % p.v_size;
    const u32 i = t / p.v_size % p.queries;
    const u32 h = t / p.v_size / p.queries % p.q_heads;
    const u32 b = t / p.v_size / p.queries / p.q_heads;
    const u32 row = ((b * p.q_heads + h) * p.queries + i) * p.keys;
    const u32 kv = h * p.kv_heads / p.q_heads;
    f32 sum = 0.0f;
    for (u32 j = 0u; j < p.keys; j++) {
        mac(sum, bitcast<f32>(k.scratch[row + j]), value(k, p, b, kv, j, d));
    }
    k.emit0(place(p, b, h, i, d), sum);
}

// A thread a component of the keys, past and new.
template <class K> DEV void keys(const K& k, u32 t) {
    const auto& p = params<AttentionParams>(k);
    const u32 d = t % p.size;
    const u32 j = t / p.size % p.keys;
    const u32 h = t / p.size / p.keys % p.kv_heads;
    k.emit1(t, key(k, p, t / p.size / p.keys / p.kv_heads, h, j, d));
}

template <class K> DEV void values(const K& k, u32 t) {
    const auto& p = params<AttentionParams>(k);
    const u32 d = t % p.v_size;
    const u32 j = t / p.v_size % p.keys;
    const u32 h = t / p.v_size / p.keys % p.kv_heads;
    k.emit2(t, value(k, p, t / p.v_size / p.keys / p.kv_heads, h, j, d));
}

// Contents of the output of scores, chosen by `K::QK`.
enum Qk : u32 { PRODUCT, CAPPED, SCORE, WEIGHT };

template <class K> DEV void qk(const K& k, u32 t) {
    const auto& p = params<AttentionParams>(k);
    const u32 j = t % p.keys;
    const u32 i = t / p.keys % p.queries;
    const u32 h = t / p.keys / p.queries % p.q_heads;
    const u32 b = t / p.keys / p.queries / p.q_heads;
    if constexpr (K::QK == PRODUCT) {
        k.emit3(t, product(k, p, b, h, i, j));
    } else if constexpr (K::QK == CAPPED) {
        k.emit3(t, capped(p, product(k, p, b, h, i, j)));
    } else if constexpr (K::QK == SCORE) {
        k.emit3(t, score(k, p, b, h, i, j));
    } else {
        k.emit3(t, bitcast<f32>(k.scratch[t]));
    }
}
