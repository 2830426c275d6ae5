// Fast Fourier transforms by Stockham passes, each of which makes transforms of `radix` points in the memory of a block. Several
// passes make longer ones. Lengths that no passes make are convolutions with a chirp (Bluestein), of a length that they make. All are
// forward: the functions `sample` and `result` conjugate numbers where the operator asks for another direction.
#pragma once
#include "fourier.cuh"

struct FftParams {
    u32 length;
    u32 radix;
    u32 stages;
    u32 before;
    u32 row;
    u32 rows;
    u32 batch;
    u32 source;
    u32 drain;
    u32 reads;
    u32 writes;
    u32 undo;
    u32 points;
    u32 sizes[6];
};

// Two halves, from one of which a stage reads while it writes the other.
constexpr u32 HALF = 1024u;

DEV vec2<f32> times(vec2<f32> a, vec2<f32> b) { return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }

DEV vec2<f32> conjugate(vec2<f32> a) { return vec2<f32>(a.x, -a.y); }

// a times -i.
DEV vec2<f32> quarter(vec2<f32> a) { return vec2<f32>(a.y, -a.x); }

// e^(-i 2 pi k / n) for k < n.
DEV vec2<f32> root(u32 k, u32 n) { return conjugate(unit(k, n)); }

// k k mod n for k < n <= 2^24.
DEV u32 square_mod(u32 k, u32 n) { return u32(u64(k) * k % n); }

// e^(-i pi t t / n) for t < n.
DEV vec2<f32> chirp(u32 t, u32 n) { return root(square_mod(t, 2u * n), 2u * n); }

template <class K> DEV vec2<f32> stored(const K& k, u32 at) {
    return vec2<f32>(cf(k.scratch[2u * at]), cf(k.scratch[2u * at + 1u]));
}

template <class K> DEV void store(const K& k, u32 at, vec2<f32> v) {
    k.scratch[2u * at] = __float_as_uint(v.x);
    k.scratch[2u * at + 1u] = __float_as_uint(v.y);
}

// Number t of a row, from memory or from the operator's input.
template <class K> DEV vec2<f32> taken(const K& k, const FftParams& p, u32 row, u32 t) {
    switch (p.source) {
        // Left by an earlier pass.
        case 0u: { return stored(k, p.reads + row * p.length + t); }
        case 1u: { return sample(k, p, p.row + row, t); }
        // Times the chirp, filled up with zeros.
        case 2u: {
            if (t >= p.points) {
                return vec2<f32>(0.0f, 0.0f);
            }
            return times(sample(k, p, p.row + row, t), chirp(t, p.points));
        }
        // Factors that undo the chirp, around 0.
        default: {
            const u32 away = ::min(t, p.length - t);
            if (away >= p.points) {
                return vec2<f32>(0.0f, 0.0f);
            }
            return conjugate(chirp(away, p.points));
        }
    }
}

// Stores number j of a row's transform.
template <class K> DEV void given(const K& k, const FftParams& p, u32 row, u32 j, vec2<f32> v) {
    switch (p.drain) {
        case 0u: {
            store(k, p.writes + row * p.length + j, v);
            break;
        }
        case 1u: {
            result(k, p, p.row + row, j, v);
            break;
        }
        // Times the transform of what undoes the chirp, to be transformed back.
        case 2u: {
            store(k, p.writes + row * p.length + j, conjugate(times(v, stored(k, p.undo + j))));
            break;
        }
        default: {
            if (j < p.points) {
                result(k, p, p.row + row, j, times(conjugate(v) / f32(p.length), chirp(j, p.points)));
            }
        }
    }
}

struct Four {
    vec2<f32> a, b, c, d;
};

DEV Four four(vec2<f32> a, vec2<f32> b, vec2<f32> c, vec2<f32> d) {
    const vec2<f32> s = a + c;
    const vec2<f32> t = b + d;
    const vec2<f32> u = a - c;
    const vec2<f32> v = quarter(b - d);
    return Four{s + t, u + v, s - t, u - v};
}

// A number of a butterfly, turned by root k.
DEV void put(vec2<f32>* to, vec2<f32> v, u32 k, const vec2<f32>* roots) { *to = k == 0u ? v : times(v, roots[k]); }

// One butterfly of r points that are `stride` apart; results are `apart` apart, and turned by roots at multiples of `k`.
DEV void butterfly(u32 r, const vec2<f32>* x, u32 stride, vec2<f32>* y, u32 apart, u32 k, const vec2<f32>* roots) {
    const vec2<f32> a = x[0];
    const vec2<f32> b = x[stride];
    switch (r) {
        case 2u: {
            y[0] = a + b;
            put(y + apart, a - b, k, roots);
            break;
        }
        case 3u: {
            const vec2<f32> c = x[2u * stride];
            const vec2<f32> s = b + c;
            const vec2<f32> m = a - s * 0.5f;
            const vec2<f32> d = quarter((b - c) * 0.8660254037844386f);
            y[0] = a + s;
            put(y + apart, m + d, k, roots);
            put(y + 2u * apart, m - d, 2u * k, roots);
            break;
        }
        case 4u: {
            const Four f = four(a, b, x[2u * stride], x[3u * stride]);
            y[0] = f.a;
            put(y + apart, f.b, k, roots);
            put(y + 2u * apart, f.c, 2u * k, roots);
            put(y + 3u * apart, f.d, 3u * k, roots);
            break;
        }
        case 5u: {
            const vec2<f32> c = x[2u * stride];
            const vec2<f32> d = x[3u * stride];
            const vec2<f32> e = x[4u * stride];
            const vec2<f32> s = b + e;
            const vec2<f32> t = c + d;
            const vec2<f32> u = b - e;
            const vec2<f32> v = c - d;
            const vec2<f32> m = a + s * 0.30901699437494745f - t * 0.8090169943749475f;
            const vec2<f32> o = a - s * 0.8090169943749475f + t * 0.30901699437494745f;
            const vec2<f32> p = quarter(u * 0.9510565162951535f + v * 0.5877852522924731f);
            const vec2<f32> q = quarter(u * 0.5877852522924731f - v * 0.9510565162951535f);
            y[0] = a + s + t;
            put(y + apart, m + p, k, roots);
            put(y + 2u * apart, o + q, 2u * k, roots);
            put(y + 3u * apart, o - q, 3u * k, roots);
            put(y + 4u * apart, m - p, 4u * k, roots);
            break;
        }
        default: {
            const f32 h = 0.7071067811865476f;
            const Four even = four(a, x[2u * stride], x[4u * stride], x[6u * stride]);
            const Four odd = four(b, x[3u * stride], x[5u * stride], x[7u * stride]);
            const vec2<f32> e = times(odd.b, vec2<f32>(h, -h));
            const vec2<f32> f = quarter(odd.c);
            const vec2<f32> g = times(odd.d, vec2<f32>(-h, -h));
            y[0] = even.a + odd.a;
            put(y + apart, even.b + e, k, roots);
            put(y + 2u * apart, even.c + f, 2u * k, roots);
            put(y + 3u * apart, even.d + g, 3u * k, roots);
            put(y + 4u * apart, even.a - odd.a, 4u * k, roots);
            put(y + 5u * apart, even.b - e, 5u * k, roots);
            put(y + 6u * apart, even.c - f, 6u * k, roots);
            put(y + 7u * apart, even.d - g, 7u * k, roots);
        }
    }
}

// One pass: a block makes `batch` transforms of `radix` points, of all rows.
template <class K> DEV void fft_pass(const K& k) {
    __shared__ __align__(8) u8 memory[2u * HALF * sizeof(vec2<f32>)];
    __shared__ __align__(8) u8 turns[HALF * sizeof(vec2<f32>)];
    vec2<f32>* numbers = reinterpret_cast<vec2<f32>*>(memory);
    // The roots of unity of all butterflies, each computed once.
    vec2<f32>* roots = reinterpret_cast<vec2<f32>*>(turns);
    const auto& p = params<FftParams>(k);
    const u32 lane = threadIdx.x;
    // Transforms of a row, and of this block.
    const u32 each = p.length / p.radix;
    const u32 first = blockIdx.x * p.batch;
    const u32 count = ::min(p.batch, p.rows * each - first);
    const u32 total = count * p.radix;
    for (u32 e = lane; e < total; e += 128u) {
        // Neighbours in memory are read by neighbouring threads.
        const u32 b = each == 1u ? e / p.radix : e % count;
        const u32 j = each == 1u ? e % p.radix : e / count;
        const u32 g = first + b;
        numbers[b * p.radix + j] = taken(k, p, g / each, g % each + each * j);
    }
    for (u32 e = lane; e < p.radix; e += 128u) {
        roots[e] = root(e, p.radix);
    }
    __syncthreads();
    u32 here = 0u;
    u32 done = 1u;
    for (u32 code = p.stages; code != 0u; code = code >> 4) {
        const u32 r = code & 15u;
        const u32 stride = p.radix / r;
        for (u32 e = lane; e < count * stride; e += 128u) {
            const u32 b = e / stride * p.radix;
            const u32 u = e % stride;
            const u32 turned = u / done * done;
            butterfly(r, numbers + here + b + u, stride, numbers + HALF - here + b + u - turned + turned * r, done, turned, roots);
        }
        here = HALF - here;
        done = done * r;
        __syncthreads();
    }
    for (u32 e = lane; e < total; e += 128u) {
        const u32 b = p.before == 1u ? e / p.radix : e % count;
        const u32 j = p.before == 1u ? e % p.radix : e / count;
        const u32 g = first + b;
        const u32 u = g % each;
        const u32 turned = u / p.before * p.before;
        vec2<f32> v = numbers[here + b * p.radix + j];
        // The transforms of a pass are turned before the next one.
        if (turned != 0u && j != 0u) {
            v = times(v, root(turned * j, p.length));
        }
        given(k, p, g / each, u - turned + turned * p.radix + p.before * j, v);
    }
}
