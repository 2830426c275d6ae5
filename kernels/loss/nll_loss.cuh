// Negative log-likelihood losses. Inputs: logarithms of probabilities, targets, weights of classes (HAS_WEIGHTS).
#pragma once
#include "../prelude/launch.cuh"

struct NllLossParams {
    u32 classes;
    u32 inner;
    u32 targets;
    u32 ignores;
    i32 ignored;
};

// The class of target t; the number of classes if it is ignored or is none.
template <class K> DEV u32 class_of(const K& k, u32 t) {
    const auto& p = params<NllLossParams>(k);
    const i32 c = k.near1(t);
    const bool known = c >= 0 && u32(c) < p.classes && !(p.ignores != 0u && c == p.ignored);
    return known ? u32(c) : p.classes;
}

template <class K> DEV f32 weight_of(const K& k, u32 c) {
    if constexpr (K::HAS_WEIGHTS) {
        return k.x2(c);
    } else {
        return 1.0f;
    }
}

template <class K> DEV f32 nll_loss(const K& k, u32 t) {
    const auto& p = params<NllLossParams>(k);
    const u32 c = class_of(k, t);
    if (c == p.classes) {
        return 0.0f;
    }
    return -weight_of(k, c) * k.x0((t / p.inner * p.classes + c) * p.inner + t % p.inner);
}

// The losses of all targets: their sum, or their mean by weight.
template <class K> DEV f32 nll_loss_all(const K& k, u32) {
    const auto& p = params<NllLossParams>(k);
    // Kahan's summation: the sum is as long as the batch.
    f32 sum = 0.0f;
    f32 rest = 0.0f;
    f32 weights = 0.0f;
    for (u32 t = 0u; t < p.targets; t++) {
        const f32 y = nll_loss(k, t) - rest;
        const f32 s = sum + y;
        rest = (s - sum) - y;
        sum = s;
        const u32 c = class_of(k, t);
        if (c < p.classes) {
            weights += weight_of(k, c);
        }
    }
    return k.total(sum, weights);
}
