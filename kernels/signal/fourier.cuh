// Fourier transforms by their definition. Complex numbers are pairs.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

// e^(i 2 pi k / n) for k < n.
DEV vec2<f32> unit(u32 k, u32 n) {
    // Within an eighth of a turn, so that the angle is accurate.
    const u32 q = (k * 8u + n) / (n * 2u);
    const f32 r = f32(i32(k * 4u) - i32(q * n)) / f32(n) * 1.5707963267948966f;
    const f32 s = sinf(r);
    const f32 c = cosf(r);
    switch (q & 3u) {
        case 0u: { return vec2<f32>(c, s); }
        case 1u: { return vec2<f32>(-s, c); }
        case 2u: { return vec2<f32>(-c, -s); }
        default: { return vec2<f32>(s, -c); }
    }
}

// k t mod n for k, t < n.
DEV u32 mul_mod(u32 k, u32 t, u32 n) {
    if (n <= 65536u) {
        return k * t % n;
    }
    u32 r = 0u;
    u32 a = k;
    for (u32 b = t; b > 0u; b = b >> 1) {
        if ((b & 1u) == 1u) {
            r = (r + a) % n;
        }
        a = (a + a) % n;
    }
    return r;
}

struct DftParams {
    u32 length;
    u32 counted;
    u32 given;
    u32 made;
    u32 inner;
    u32 parts;
};

template <class K> DEV f32 dft(const K& k, u32 at) {
    const auto& p = params<DftParams>(k);
    const u32 pair = at / 2u;
    const u32 low = pair % p.inner;
    const u32 bin = pair / p.inner % p.made;
    const u32 outer = pair / p.inner / p.made;
    auto sum = vec2<f32>(0.0f, 0.0f);
    for (u32 t = 0u; t < p.counted; t++) {
        const u32 from = ((outer * p.given + t) * p.inner + low) * p.parts;
        auto u = unit(mul_mod(bin, t, p.length), p.length);
        u.y = u.y * (K::INVERSE ? 1.0f : -1.0f);
        const f32 a = k.x0(from);
        const f32 b = p.parts == 2u ? k.x0(from + p.parts - 1u) : 0.0f;
        sum += vec2<f32>(a * u.x - b * u.y, a * u.y + b * u.x);
    }
    const f32 r = at % 2u == 1u ? sum.y : sum.x;
    return K::INVERSE ? r / f32(p.length) : r;
}

// x has two parts, the result one: the signal of which x has the transform's first half.
template <class K> DEV f32 dft_real(const K& k, u32 at) {
    const auto& p = params<DftParams>(k);
    const u32 low = at % p.inner;
    const u32 t = at / p.inner % p.made;
    const u32 outer = at / p.inner / p.made;
    f32 sum = 0.0f;
    for (u32 bin = 0u; bin < p.counted; bin++) {
        const u32 from = ((outer * p.given + bin) * p.inner + low) * 2u;
        const auto u = unit(mul_mod(bin, t, p.length), p.length);
        // All but the first and the middle one have a conjugate in the second half.
        const bool twice = bin > 0u && 2u * bin != p.length;
        const f32 r = k.x0(from) * u.x - (twice ? k.x0(from + 1u) : 0.0f) * u.y;
        sum += twice ? r + r : r;
    }
    return sum / f32(p.length);
}

struct StftParams {
    u32 length;
    u32 signal;
    u32 bins;
    u32 frames;
    u32 parts;
    u32 step;
    u32 window;
};

template <class K> DEV f32 stft(const K& k, u32 at) {
    const auto& p = params<StftParams>(k);
    const u32 bin = at / 2u % p.bins;
    const u32 frame = at / 2u / p.bins % p.frames;
    const u32 image = at / 2u / p.bins / p.frames;
    auto sum = vec2<f32>(0.0f, 0.0f);
    const u32 begin = frame * p.step;
    for (u32 t = 0u; t < p.length && begin + t < p.signal; t++) {
        const u32 from = (image * p.signal + begin + t) * p.parts;
        auto u = unit(mul_mod(bin, t, p.length), p.length);
        u.y = -u.y;
        u = u * k.weight(t, p.window);
        const f32 a = k.x0(from);
        const f32 b = p.parts == 2u ? k.x0(from + p.parts - 1u) : 0.0f;
        sum += vec2<f32>(a * u.x - b * u.y, a * u.y + b * u.x);
    }
    return at % 2u == 1u ? sum.y : sum.x;
}
