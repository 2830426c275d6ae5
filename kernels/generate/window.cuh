// Windows C + s (A + B s) = 1 - (1 - s) (D - B (1 - s)) with s = sin^2(pi at / period).
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

struct WindowParams {
    u32 period;
    f32 c;
    f32 a;
    f32 b;
    f32 d;
};

template <class K> DEV f32 window_weight(const K& k, u32 at) {
    const auto& p = params<WindowParams>(k);
    const u32 n = p.period;
    if (n == 0u) {
        return 1.0f;
    }
    const u32 i = ::min(at, n - at);
    if (i <= n / 4u) {
        const f32 x = sinf(f32(i) / f32(n) * 3.1415926535897932f);
        return p.c + x * x * (p.a + p.b * (x * x));
    }
    const f32 x = sinf(f32(n - 2u * i) / f32(n) * 1.5707963267948966f);
    return 1.0f - x * x * (p.d - p.b * (x * x));
}

template <class K> DEV auto window_function(const K& k, u32 at) { return k.converted(window_weight(k, at)); }
