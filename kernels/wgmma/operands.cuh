// Operands of wgmma in shared memory, and sums in registers.
#pragma once
#include "../prelude/types.cuh"

// Operands in stages: 128-byte swizzle, 1024 bytes from 8 rows to the next; across K, boxes are 8192 bytes apart.
DEV u64 descriptor(u32 at, u32 apart) {
    return (u64(1) << 62) | (u64(64) << 32) | (u64(apart) << 16) | u64((at & 0x3ffffu) >> 4);
}

// Keeps a sum in its register while products that the compiler does not see are under way.
DEV void settle(f32& sum) { asm volatile("" : "+f"(sum)::"memory"); }
DEV void settle(i32& sum) { asm volatile("" : "+r"(sum)::"memory"); }
