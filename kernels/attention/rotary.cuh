// Rotary embedding: pairs of elements of a head turned by angles of a table. Inputs: x, cosines, sines, and rows of the table
// (`K::IDS`) if they are not those of the positions.
#pragma once
#include "../prelude/launch.cuh"

struct RotaryParams {
    u32 heads;
    u32 positions;
    u32 of_batch;
    u32 size;
    u32 pairs;
    u32 rows;
    u32 flat;
    u32 interleaved;
};

template <class K> DEV u32 angle_row(const K& k, const RotaryParams& p, u32 b, u32 s) {
    if constexpr (K::IDS) {
        const i32 id = k.near3(b * p.positions + s);
        return u32(id < 0 ? id + i32(p.rows) : id);
    } else {
        return b * p.of_batch + s;
    }
}

template <class K> DEV f32 rotary_embedding(const K& k, u32 at) {
    const auto& p = params<RotaryParams>(k);
    const u32 d = at % p.size;
    const u32 s = (p.flat != 0u ? at / p.size / p.heads : at / p.size) % p.positions;
    const u32 b = at / p.size / p.heads / p.positions;
    const u32 half = p.pairs;
    if (d >= 2u * half) {
        return k.x0(at);
    }
    const bool mixed = p.interleaved != 0u;
    const u32 pair = mixed ? d / 2u : d % half;
    const bool second = mixed ? d % 2u == 1u : d >= half;
    const u32 distance = mixed ? 1u : half;
    const u32 row = angle_row(k, p, b, s);
    f32 c = 0.0f;
    f32 z = 0.0f;
    if (row < p.rows) {
        c = k.x1(row * half + pair);
        z = k.x2(row * half + pair);
    }
    if (second) {
        return z * k.x0(at - distance) + c * k.x0(at);
    }
    return c * k.x0(at) - z * k.x0(at + distance);
}
