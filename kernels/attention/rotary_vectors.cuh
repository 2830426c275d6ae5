// Rotary embedding by vectors: a thread turns eight neighbouring elements of the first half of what turns in a head, and those of the second
// half. Inputs are those of `rotary_embedding`; distances count elements. `K::IDS`, rows of the tables are those of input 3.
#pragma once
#include "../prelude/launch.cuh"

struct RotaryVectorsParams {
    u32 heads;
    u32 positions;
    u32 size;
    u32 pairs;
    u32 rows;
    u32 flat;
    u32 first;
    u32 batch_step;
    u32 head_step;
    u32 position_step;
    u32 cosines;
    u32 cosine_batch;
    u32 cosine_row;
    u32 sines;
    u32 sine_batch;
    u32 sine_row;
};

template <class K> DEV void rotary_vectors(const K& k, u32 t) {
    typedef Run<typename K::Cell> Cells;
    const auto& p = params<RotaryVectorsParams>(k);
    const u32 turning = p.pairs / 8u;
    const u32 vectors = (p.size - p.pairs) / 8u;
    const u32 head = t / vectors;
    const u32 own = t - head * vectors;
    // The number of the head, and its position.
    const u32 outer = p.flat != 0u ? head / p.heads : head / p.positions;
    const u32 inner = head - outer * (p.flat != 0u ? p.heads : p.positions);
    const u32 b = outer / (p.flat != 0u ? p.positions : p.heads);
    const u32 rest = outer - b * (p.flat != 0u ? p.positions : p.heads);
    const u32 h = p.flat != 0u ? inner : rest;
    const u32 s = p.flat != 0u ? rest : inner;
    const u32 from = p.first + b * p.batch_step + h * p.head_step + s * p.position_step;
    const u32 to = head * p.size;
    f32 y[8];
    if (own >= turning) {
        const u32 at = p.pairs + own * 8u;
        const auto x = Cells::of(k.bx0 + from + at, 1u);
#pragma unroll
        for (u32 i = 0u; i < 8u; i++) {
            y[i] = k.wide(x.v[i]);
        }
        k.emit0_any(to + at, y);
        return;
    }
    u32 cosine = b * p.cosine_batch + s * p.cosine_row;
    u32 sine = b * p.sine_batch + s * p.sine_row;
    bool inside = true;
    if constexpr (K::IDS) {
        const i32 id = k.near3(b * p.positions + s);
        const u32 row = u32(id < 0 ? id + i32(p.rows) : id);
        inside = row < p.rows;
        cosine = row * p.cosine_row;
        sine = row * p.sine_row;
    }
    const u32 at = own * 8u;
    const auto x = Cells::of(k.bx0 + from + at, 1u);
    const auto other = Cells::of(k.bx0 + from + at + p.pairs, 1u);
    Cells cosines = {};
    Cells sines = {};
    if (inside) {
        cosines = Cells::of(k.bx1 + p.cosines + cosine + at, 1u);
        sines = Cells::of(k.bx2 + p.sines + sine + at, 1u);
    }
    f32 z[8];
#pragma unroll
    for (u32 i = 0u; i < 8u; i++) {
        const f32 c = k.wide(cosines.v[i]);
        const f32 d = k.wide(sines.v[i]);
        y[i] = c * k.wide(x.v[i]) - d * k.wide(other.v[i]);
        z[i] = d * k.wide(x.v[i]) + c * k.wide(other.v[i]);
    }
    k.emit0_any(to + at, y);
    k.emit0_any(to + at + p.pairs, z);
}
