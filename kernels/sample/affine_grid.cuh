// Grids of coordinates that matrices move. ALIGN says whether -1 and 1 are the centres of the outermost elements.
#pragma once
#include "../prelude/launch.cuh"

struct AffineGridParams {
    List sizes;
};

template <class K> DEV f32 coordinate(u32 n, u32 i) {
    if (K::ALIGN) {
        return n <= 1u ? -1.0f : 2.0f * f32(i) / f32(n - 1u) - 1.0f;
    }
    return f32(2u * i + 1u) / f32(n) - 1.0f;
}

template <class K> DEV f32 affine_grid(const K& k, u32 at) {
    const auto& p = params<AffineGridParams>(k);
    const u32 r = p.sizes.count;
    const u32 row = at % r;
    u32 rest = at / r;
    u32 place[3] = {};
    for (u32 d = r; d > 0u; d--) {
        const u32 n = item(k, p.sizes, d - 1u);
        place[d - 1u] = rest % n;
        rest = rest / n;
    }
    const u32 matrix = (rest * r + row) * (r + 1u);
    f32 sum = k.x0(matrix + r);
    for (u32 c = 0u; c < r; c++) {
        const u32 d = r - 1u - c;
        sum += k.x0(matrix + c) * coordinate<K>(item(k, p.sizes, d), place[d]);
    }
    return sum;
}
