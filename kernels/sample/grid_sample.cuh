// Samples at the places of a grid. NEAREST, CUBIC (linear else) say how elements are combined; BORDER, REFLECTION (zeros else) what
// is beyond the border; ALIGN, whether -1 and 1 are the centres of the outermost elements.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

struct GridSampleParams {
    u32 rank;
    u32 depth;
    u32 height;
    u32 width;
    u32 points;
    u32 channels;
};

template <class K> DEV f32 border_low() { return K::ALIGN ? 0.0f : -0.5f; }

template <class K> DEV f32 border_high(i32 size) { return f32(size) - (K::ALIGN ? 1.0f : 0.5f); }

DEV f32 reflect_at(f32 x, f32 lo, f32 hi) {
    const f32 range = hi - lo;
    if (range <= 0.0f || is_nan(x) || is_inf(x)) {
        return lo;
    }
    if (x >= lo && x <= hi) {
        return x;
    }
    const bool below = x < lo;
    const f32 beyond = below ? lo - x : x - hi;
    const f32 times = trunc(beyond / range);
    const f32 rest = beyond - times * range;
    const bool even = fract(times * 0.5f) == 0.0f;
    return below ? (even ? lo + rest : hi - rest) : (even ? hi - rest : lo + rest);
}

template <class K> DEV f32 bring_inside(f32 x, i32 size) {
    const f32 lo = border_low<K>();
    const f32 hi = border_high<K>(size);
    if (x >= lo && x <= hi) {
        return x;
    }
    if constexpr (K::REFLECTION) {
        return reflect_at(x, lo, hi);
    }
    if constexpr (K::BORDER) {
        // Every tap of a cubic is brought inside by itself.
        return K::CUBIC ? clamp(x, -2.0f, f32(size) + 1.0f) : clamp(x, 0.0f, max(f32(size) - 1.0f, 0.0f));
    }
    return x;
}

// The element that an index reads; -1 for zero.
template <class K> DEV i32 element_of(i32 i, i32 size) {
    if (i >= 0 && i < size) {
        return i;
    }
    if constexpr (K::REFLECTION) {
        i = f_to_i32(reflect_at(f32(i), border_low<K>(), border_high<K>(size)));
    }
    if constexpr (K::REFLECTION || K::BORDER) {
        return size == 0 ? -1 : clamp(i, 0, size - 1);
    }
    return -1;
}

DEV f32 cubic_kernel(f32 v) {
    const f32 x = abs(v);
    const f32 a = -0.75f;
    if (x <= 1.0f) {
        return ((a + 2.0f) * x - (a + 3.0f)) * x * x + 1.0f;
    }
    if (x < 2.0f) {
        return ((a * x - 5.0f * a) * x + 8.0f * a) * x - 4.0f * a;
    }
    return 0.0f;
}

template <class K> DEV f32 tap_weight(f32 part, i32 tap) {
    if constexpr (K::NEAREST) {
        return 1.0f;
    } else if constexpr (K::CUBIC) {
        return cubic_kernel(f32(tap) - part);
    } else {
        return tap == 1 ? part : 1.0f - part;
    }
}

template <class K> DEV f32 grid_sample(const K& k, u32 at) {
    constexpr u32 TAPS = K::NEAREST ? 1u : K::CUBIC ? 4u : 2u;
    const auto& p = params<GridSampleParams>(k);
    const u32 point = at % p.points;
    const u32 plane = at / p.points;
    const u32 image = plane / p.channels;
    const i32 sizes[3] = {i32(p.depth), i32(p.height), i32(p.width)};
    i32 first[3] = {};
    f32 part[3] = {};
    for (u32 d = 0u; d < 3u; d++) {
        if (d + p.rank >= 3u) {
            const i32 size = sizes[d];
            f32 n = k.x1((image * p.points + point) * p.rank + 2u - d);
            if (is_nan(n)) {
                n = -1.0f;
            }
            f32 x = ((n + 1.0f) * f32(size) - 1.0f) / 2.0f;
            if (K::ALIGN) {
                x = (n + 1.0f) / 2.0f * (f32(size) - 1.0f);
            }
            x = bring_inside<K>(K::NEAREST ? nearest(x) : x, size);
            const f32 f = K::NEAREST ? nearest(x) : floor(x);
            first[d] = f_to_i32(f);
            part[d] = x - f;
        }
    }
    const i32 volume = sizes[0] * sizes[1] * sizes[2];
    f32 sum = 0.0f;
    u32 combinations = TAPS;
    if (p.rank > 1u) {
        combinations *= TAPS;
    }
    if (p.rank > 2u) {
        combinations *= TAPS;
    }
    for (u32 c = 0u; c < combinations; c++) {
        u32 which = c;
        i32 source = 0;
        f32 weight = 1.0f;
        bool ok = true;
        for (u32 d = 3u - p.rank; d < 3u; d++) {
            const i32 tap = i32(which % TAPS) - (K::CUBIC ? 1 : 0);
            which = which / TAPS;
            const i32 i = element_of<K>(first[d] + tap, sizes[d]);
            ok = ok && i >= 0;
            source = source * sizes[d] + i;
            weight *= tap_weight<K>(part[d], tap);
        }
        if (ok) {
            sum += weight * k.x0(plane * u32(volume) + u32(source));
        }
    }
    return sum;
}
