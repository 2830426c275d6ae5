// Divisions by numbers that a launch knows.
#pragma once
#include "../prelude/launch.cuh"

// A divisor with a factor and a shift that stand for it; the shift is 32 where numbers may be too large for that.
struct Divisor {
    u32 size, factor, shift;
};

DEV u32 divide(u32 n, Divisor d) { return d.shift == 32u ? n / d.size : (__umulhi(n, d.factor) + n) >> d.shift; }
