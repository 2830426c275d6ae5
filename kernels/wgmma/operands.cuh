// Operands of wgmma in shared memory, and sums in registers.
#pragma once
#include "../prelude/types.cuh"

// Operands in stages: swizzle of LINE bytes, a row's; across K, boxes are 8192 bytes apart. Only the low word of a descriptor depends on
// the address, which counts 16 bytes there. The high one has the distance from 8 rows to the next.
DEV u32 descriptor_low(u32 at, u32 apart) { return (apart << 16) | ((at & 0x3ffffu) >> 4); }
template <u32 LINE = 128u> DEV u64 descriptor_of(u32 low) {
    static_assert(LINE == 128u || LINE == 64u);
    return (u64(LINE == 128u ? 1 : 2) << 62) | (u64(LINE / 2u) << 32) | low;
}
DEV u64 descriptor(u32 at, u32 apart) { return descriptor_of(descriptor_low(at, apart)); }

// A number that all lanes of a warp have. What follows from it stays in uniform registers, where instructions take descriptors from.
DEV u32 uniform(u32 v) { return __shfl_sync(0xffffffffu, v, 0); }

// Keeps a sum in its register while products that the compiler does not see are under way.
DEV void settle(f32& sum) { asm volatile("" : "+f"(sum)::"memory"); }
DEV void settle(i32& sum) { asm volatile("" : "+r"(sum)::"memory"); }
