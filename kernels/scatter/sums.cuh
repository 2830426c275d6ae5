// Sums of floats at many places at once: each place of the result has an f32 in scratch memory, or is one where results are DIRECT, to
// which threads add as they come, so that roundings depend on their order. Four neighbouring updates of neighbouring places are one
// instruction on sm_90.
#pragma once
#include "places.cuh"

// Neighbours in memory that are loaded together.
template <class Cell, u32 N> struct alignas(N * sizeof(Cell) <= 16u ? N * sizeof(Cell) : 16u) Four {
    Cell v[N];
};

template <class K> DEV f32* sums_of(const K& k) {
    if constexpr (K::DIRECT) {
        return k.by0;
    } else {
        return reinterpret_cast<f32*>(k.scratch);
    }
}

// Four sums begin with 0, or, DIRECT, with what is added to.
template <class K> DEV void start_sums(const K& k, u32 t) {
    if constexpr (K::DIRECT) {
        const auto& p = params<ScatterPlacesParams>(k);
        const bool whole = (t + 1u) * 4u <= p.results && (u64(k.bx0) | u64(k.by0)) % 16u == 0u;
        if (whole) {
            reinterpret_cast<float4*>(k.by0)[t] = reinterpret_cast<const float4*>(k.bx0)[t];
        }
        for (u32 i = t * 4u; !whole && i < min((t + 1u) * 4u, p.results); i++) {
            k.by0[i] = k.bx0[i];
        }
    } else {
        reinterpret_cast<float4*>(k.scratch)[t] = float4{0.0f, 0.0f, 0.0f, 0.0f};
    }
}

DEV void add_4(f32* to, const f32 (&v)[4]) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
#else
#pragma unroll
    for (u32 j = 0u; j < 4u; j++) {
        atomicAdd(to + j, v[j]);
    }
#endif
}

// Adds four updates, at once where their places follow each other.
template <class K> DEV void add_near(const K& k, const u32 (&places)[4], const f32 (&v)[4]) {
    const bool near = places[1] == places[0] + 1u && places[2] == places[0] + 2u && places[3] == places[0] + 3u;
    if (near && u64(sums_of(k) + places[0]) % 16u == 0u && places[3] != NOWHERE) {
        add_4(sums_of(k) + places[0], v);
        return;
    }
#pragma unroll
    for (u32 j = 0u; j < 4u; j++) {
        if (places[j] != NOWHERE) {
            atomicAdd(sums_of(k) + places[j], v[j]);
        }
    }
}

// Four neighbouring updates of a line whose places follow each other but for their indices.
template <class K> DEV void add_4_updates(const K& k, u32 t) {
    typedef typename K::Cell Cell;
    typedef typename K::IndexCell Index;
    const auto& p = params<ScatterPlacesParams>(k);
    const auto updates = reinterpret_cast<const Four<Cell, 4u>*>(k.bx2)[t];
    u32 places[4];
    if constexpr (K::TUPLES) {
        const u32 first = place_of(k, p, t * 4u);
#pragma unroll
        for (u32 j = 0u; j < 4u; j++) {
            places[j] = first == NOWHERE ? NOWHERE : first + j;
        }
    } else {
        constexpr u32 EACH = 16u / u32(sizeof(Index)) < 4u ? 16u / u32(sizeof(Index)) : 4u;
        typedef Four<Index, EACH> Indices;
        Indices indices[4u / EACH];
#pragma unroll
        for (u32 j = 0u; j < 4u / EACH; j++) {
            indices[j] = reinterpret_cast<const Indices*>(k.bx1)[t * (4u / EACH) + j];
        }
        const u32 base = place_beside<K>(k, p, t * 4u);
#pragma unroll
        for (u32 j = 0u; j < 4u; j++) {
            const i32 i = checked(k, 1u, t * 4u + j, indices[j / EACH].v[j % EACH], p.size);
            places[j] = i < 0 ? NOWHERE : base + j + u32(i) * p.stride;
        }
    }
    f32 v[4];
#pragma unroll
    for (u32 j = 0u; j < 4u; j++) {
        v[j] = k.wide(updates.v[j]);
    }
    add_near(k, places, v);
}

// One update.
template <class K> DEV void add_1_update(const K& k, u32 t) {
    const u32 place = place_of(k, params<ScatterPlacesParams>(k), t);
    if (place != NOWHERE) {
        atomicAdd(sums_of(k) + place, k.x2(t));
    }
}

// Eight elements of the result, or one.
template <class K> DEV void finish_8_sums(const K& k, u32 t) {
    typedef typename K::Cell Cell;
    const auto x = Run<Cell>::of(k.bx0 + t * 8u, 1u);
    const float4 low = reinterpret_cast<const float4*>(k.scratch)[t * 2u];
    const float4 high = reinterpret_cast<const float4*>(k.scratch)[t * 2u + 1u];
    const f32 sums[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    f32 v[8];
#pragma unroll
    for (u32 j = 0u; j < 8u; j++) {
        v[j] = k.wide(x.v[j]) + sums[j];
    }
    k.emit0_run(t * 8u, v);
}

template <class K> DEV void finish_1_sum(const K& k, u32 t) { k.emit0(t, k.x0(t) + sums_of(k)[t]); }
