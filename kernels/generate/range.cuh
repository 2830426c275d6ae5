// Numbers at equal distances.
#pragma once
#include "../prelude/launch.cuh"

struct RangeParams {
    u32 start;
    u32 step;
};

// In 32 bits the lower ones of any product and sum are right.
template <class K> DEV i32 range_narrow(const K& k, u32 at) {
    const auto& p = params<RangeParams>(k);
    return k.narrowed(bitcast<i32>(p.start + at * p.step));
}

struct WideRangeParams {
    Long start;
    Long step;
};

template <class K> DEV i64 range_wide(const K& k, u32 at) {
    const auto& p = params<WideRangeParams>(k);
    return i64(p.start) + i64(at) * i64(p.step);
}

struct FloatRangeParams {
    f32 start;
    f32 upper;
    f32 lower;
    f32 scale;
    f32 scale_again;
};

// The sum of two numbers and what its rounding lost.
DEV vec2<f32> add_up(vec2<f32> sum, f32 x) {
    const f32 s = sum.x + x;
    const f32 b = s - sum.x;
    return vec2<f32>(s, sum.y + ((sum.x - (s - b)) + (x - b)));
}

// All products are exact: factors have 12 bits.
template <class K> DEV f32 range_float(const K& k, u32 at) {
    const auto& p = params<FloatRangeParams>(k);
    const f32 high = f32(at & 0xff000000u);
    const f32 middle = f32(at & 0x00fff000u);
    const f32 low = f32(at & 0x00000fffu);
    auto sum = vec2<f32>(p.start, 0.0f);
    sum = add_up(sum, high * p.upper);
    sum = add_up(sum, high * p.lower);
    sum = add_up(sum, middle * p.upper);
    sum = add_up(sum, middle * p.lower);
    sum = add_up(sum, low * p.upper);
    sum = add_up(sum, low * p.lower);
    return (sum.x + sum.y) * p.scale * p.scale_again;
}
