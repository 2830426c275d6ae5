// Random numbers by Philox4x32-10.
#pragma once
#include "../prelude/launch.cuh"

// Word `lane` of a block.
DEV u32 philox(u32 k0, u32 k1, u32 block, u32 lane) {
    u32 c0 = block, c1 = 0u, c2 = 0u, c3 = 0u;
    for (u32 round = 0u; round < 10u; round++) {
        const u64 a = u64(0xd2511f53u) * u64(c0);
        const u64 b = u64(0xcd9e8d57u) * u64(c2);
        c0 = u32(b >> 32) ^ c1 ^ k0;
        c1 = u32(b);
        c2 = u32(a >> 32) ^ c3 ^ k1;
        c3 = u32(a);
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return lane == 0u ? c0 : lane == 1u ? c1 : lane == 2u ? c2 : c3;
}

struct UniformParams {
    u32 key;
    u32 key_high;
    f32 start;
    f32 width;
    f32 end;
    f32 last;
    u32 zero;
};

template <class K> DEV f32 uniform_number(const K& k, u32 at) {
    const auto& p = params<UniformParams>(k);
    const f32 share = f32(philox(p.key, p.key_high, at / 4u, at % 4u) >> 8) * 5.9604644775390625e-8f;
    // Rounded twice, as every backend does.
    const f32 y = k.narrowed(__fadd_rn(p.start, __fmul_rn(p.width, share)));
    const bool beyond = p.width > 0.0f ? y >= p.end : y <= p.end;
    return beyond ? p.last : y;
}

struct NormalParams {
    u32 key;
    u32 key_high;
    f32 mean;
    f32 deviation;
};

template <class K> DEV f32 normal(const K& k, u32 at) {
    const auto& p = params<NormalParams>(k);
    const u32 pair = at & 2u;
    const u32 bits = philox(p.key, p.key_high, at / 4u, pair) >> 8;
    const f32 radius = sqrtf(-2.0f * logf(f32(bits + 1u) * 5.9604644775390625e-8f));
    const u32 turn = (philox(p.key, p.key_high, at / 4u, pair + 1u) >> 8) * 4u;
    const u32 quarter = (turn + 0x800000u) >> 24;
    const f32 r = f32(i32(turn) - i32(quarter << 24)) * 9.362675707309822e-8f;
    // Even elements take the cosine.
    const u32 q = (quarter + 1u - (at & 1u)) & 3u;
    const f32 v = (q & 1u) == 1u ? cosf(r) : sinf(r);
    return p.mean + p.deviation * (radius * (q >= 2u ? -v : v));
}
