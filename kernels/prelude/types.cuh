// Names of types, small vectors, and what kernels share with other languages: `select(no, yes, test)` evaluates only the
// side that it gives.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;
typedef float f32;

// The copy engine's description of a tensor, as the driver makes it.
struct alignas(64) TensorMap {
    u8 bytes[128];
};

#define DEV __device__ inline
#define let const auto
#define select(no, yes, test) ((test) ? (yes) : (no))

template <class T> struct vec2 {
    T x, y;
    DEV vec2(T x, T y) : x(x), y(y) {}
    DEV vec2& operator+=(vec2 o) { x += o.x; y += o.y; return *this; }
};

template <class T> struct vec3 {
    T x, y, z;
    DEV vec3(T x, T y, T z) : x(x), y(y), z(z) {}
    DEV explicit vec3(T v) : x(v), y(v), z(v) {}
    DEV T& operator[](u32 i) { return i == 0u ? x : i == 1u ? y : z; }
    DEV const T& operator[](u32 i) const { return i == 0u ? x : i == 1u ? y : z; }
};

DEV vec2<f32> operator+(vec2<f32> a, vec2<f32> b) { return vec2<f32>(a.x + b.x, a.y + b.y); }
DEV vec2<f32> operator-(vec2<f32> a, vec2<f32> b) { return vec2<f32>(a.x - b.x, a.y - b.y); }
DEV vec2<f32> operator*(vec2<f32> a, f32 b) { return vec2<f32>(a.x * b, a.y * b); }
DEV vec2<f32> operator/(vec2<f32> a, f32 b) { return vec2<f32>(a.x / b, a.y / b); }
DEV vec2<f32> flip(vec2<f32> a) { return vec2<f32>(a.y, a.x); }
DEV vec2<f32> min(vec2<f32> a, vec2<f32> b) { return vec2<f32>(::min(a.x, b.x), ::min(a.y, b.y)); }
DEV vec2<f32> max(vec2<f32> a, vec2<f32> b) { return vec2<f32>(::max(a.x, b.x), ::max(a.y, b.y)); }

template <class To, class From> DEV To bitcast(From x) { return __builtin_bit_cast(To, x); }

template <class T> DEV T clamp(T x, T low, T high) { return ::min(::max(x, low), high); }

// s += a b, rounded once for floats.
DEV void mac(f32& s, f32 a, f32 b) { s = __fmaf_rn(a, b, s); }
DEV void mac(i32& s, i32 a, i32 b) { s = i32(u32(s) + u32(a) * u32(b)); }
DEV void mac(i64& s, i64 a, i64 b) { s = i64(u64(s) + u64(a) * u64(b)); }

DEV f32 cf(u32 bits) { return __uint_as_float(bits); }
DEV i64 ci64(u32 high, u32 low) { return i64((u64(high) << 32) | low); }
DEV bool is_nan(f32 x) { return (__float_as_uint(x) & 0x7fffffffu) > 0x7f800000u; }
DEV bool is_inf(f32 x) { return (__float_as_uint(x) & 0x7fffffffu) == 0x7f800000u; }
