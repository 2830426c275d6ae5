// The triangle of matrices above (`K::UPPER`) or below a diagonal.
#pragma once
#include "../prelude/launch.cuh"

struct TriluParams {
    u32 rows;
    u32 columns;
    i32 diagonal;
};

template <class K> DEV typename K::Value trilu(const K& k, u32 at) {
    const auto& p = params<TriluParams>(k);
    const i32 d = i32(at % p.columns) - i32(at / p.columns % p.rows);
    if (K::UPPER ? d >= p.diagonal : d <= p.diagonal) {
        return k.x0(at);
    }
    return K::GAP;
}
