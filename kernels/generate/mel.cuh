// Triangular filters from linear spectral bins to mel bands.
#pragma once
#include "../prelude/launch.cuh"

struct MelParams {
    u32 bands;
    List bins;
    List floats;
};

// From one bin to another, exact where both are integers of 30 bits.
DEV f32 bins_between(i32 low, f32 low_float, i32 high, f32 high_float) {
    const i32 limit = 1073741824;
    if (-limit < low && low < limit && -limit < high && high < limit) {
        return f32(high - low);
    }
    return high_float - low_float;
}

template <class K> DEV f32 edges_between(const K& k, const MelParams& p, u32 a, u32 b) {
    return bins_between(item_i32(k, p.bins, a), item_f32(k, p.floats, a), item_i32(k, p.bins, b), item_f32(k, p.floats, b));
}

template <class K> DEV f32 mel_weight(const K& k, u32 at) {
    const auto& p = params<MelParams>(k);
    const u32 band = at % p.bands;
    const i32 j = i32(at / p.bands);
    const i32 low = item_i32(k, p.bins, band);
    const i32 center = item_i32(k, p.bins, band + 1u);
    const i32 high = item_i32(k, p.bins, band + 2u);
    if (center <= j && j < high) {
        return bins_between(j, f32(j), high, item_f32(k, p.floats, band + 2u)) / edges_between(k, p, band + 1u, band + 2u);
    }
    if (low == center) {
        return j == center ? 1.0f : 0.0f;
    }
    if (low <= j && j <= center) {
        return bins_between(low, item_f32(k, p.floats, band), j, f32(j)) / edges_between(k, p, band, band + 1u);
    }
    return 0.0f;
}

template <class K> DEV auto mel_filter(const K& k, u32 at) { return k.converted(mel_weight(k, at)); }
