// What kernels of sm_90a share that copy by TMA and multiply by wgmma: barriers in shared memory, copies of boxes, and where
// operands are. Rows of operands have 128 bytes and the swizzle of as many, or 64: eight rows after each other.
#pragma once
#include "../prelude/launch.cuh"
#include "barriers.cuh"
#include "operands.cuh"

DEV u32 address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

// A box of a tensor of three dimensions; to the same place of BLOCKS blocks of a cluster, from block `first` on, whose barriers there
// count it.
template <u32 BLOCKS = 1u> DEV void box(u32 to, const TensorMap* map, u32 barrier, u32 x, u32 y, u32 z, u32 first = 0u) {
    if constexpr (BLOCKS > 1u) {
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
                     "{%3, %4, %5}], [%2], %6;" ::"r"(to),
                     "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(u16(((1u << BLOCKS) - 1u) << first))
                     : "memory");
        return;
    }
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
                 "%5}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

// A box of a tensor whose lines are counted by 2, by 4 (eight lines apart), by 4 (two lines apart) and by 32: of 32 columns of a
// product a lane then has the sums of eight neighbours.
template <u32 BLOCKS = 1u> DEV void spread_box(u32 to, const TensorMap* map, u32 barrier, u32 x, u32 of_32, u32 first = 0u) {
    if constexpr (BLOCKS > 1u) {
        asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
                     "{%3, %4, %4, %4, %5}], [%2], %6;" ::"r"(to),
                     "l"(map), "r"(barrier), "r"(x), "r"(0u), "r"(of_32), "h"(u16(((1u << BLOCKS) - 1u) << first))
                     : "memory");
        return;
    }
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
                 "%4, %4, %5}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(0u), "r"(of_32)
                 : "memory");
}

// Elements under one tap of neighbouring windows.
DEV void under_tap(u32 to, const TensorMap* map, u32 barrier, u32 c, i32 x, i32 y, u32 image, u32 dx, u32 dy) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
                 "%5, %6}], [%2], {%7, %8};" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(c), "r"(x), "r"(y), "r"(image), "h"(u16(dx)), "h"(u16(dy))
                 : "memory");
}
