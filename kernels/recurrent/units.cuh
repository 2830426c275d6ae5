// Parameters of recurrences whose weights stay on the chip, and what all of them do with a unit.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

struct RecurrentChipParams {
    u32 rows;
    u32 columns;
    u32 depth;
    u32 steps;
    u32 directions;
    u32 batch;
    u32 batch_first;
    u32 backward;
    f32 clip;
    u32 sequences;
    u32 counters_at;
    u32 counters;
    u32 first_cluster;
};

// A gate's sum between the bounds that it is clipped to.
template <class K> DEV f32 clipped(const RecurrentChipParams& p, f32 v) {
    if constexpr (K::CLIP) {
        return is_nan(v) ? v : clamp(v, -p.clip, p.clip);
    } else {
        return v;
    }
}

// Activation `i` of a direction, of a clipped value.
template <class K> DEV f32 activate(const K& k, const RecurrentChipParams& p, u32 d, u32 i, f32 value) {
    const f32 v = clipped<K>(p, value);
    return k.activation(d * K::PER_DIRECTION + i, v, select(v, 0.0f, v < 0.0f));
}

// Addend of a gate's products: both biases; where a GRU's reset gate comes between, that of the state alone.
template <class K> DEV f32 bias_of(const K& k, u32 d, u32 g, u32 j) {
    if constexpr (K::BIAS) {
        const u32 at = (d * 2u * K::GATES + g) * K::HIDDEN + j;
        if (K::GRU && !K::RESET_FIRST && g >= 2u) {
            return k.x3(at + K::GATES * K::HIDDEN);
        }
        return k.x3(at) + k.x3(at + K::GATES * K::HIDDEN);
    } else {
        return 0.0f;
    }
}

// Addend of the new gate's product with the input, where a GRU's reset gate comes between.
template <class K> DEV f32 input_bias_of(const K& k, u32 d, u32 j) {
    if constexpr (K::BIAS) {
        return k.x3((d * 6u + 2u) * K::HIDDEN + j);
    } else {
        return 0.0f;
    }
}

// A unit's state in the beginning.
template <class K> DEV f32 first_state(const K& k, u32 at) {
    if constexpr (K::STATE) {
        return k.x5(at);
    } else {
        return 0.0f;
    }
}

// The first element of a sequence's state.
template <class K> DEV u32 state_of(const RecurrentChipParams& p, u32 d, u32 b) {
    return (p.batch_first == 1u ? b * p.directions + d : d * p.batch + b) * K::HIDDEN;
}

// Steps of a sequence.
template <class K> DEV u32 length_of(const K& k, const RecurrentChipParams& p, u32 b) {
    if constexpr (K::LENGTHS) {
        return u32(clamp(k.near4(b), 0, i32(p.steps)));
    } else {
        return p.steps;
    }
}
