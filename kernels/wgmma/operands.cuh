// Operands of wgmma in shared memory, and sums in registers.
#pragma once
#include "../prelude/types.cuh"

// Operands in stages: 128-byte swizzle, 1024 bytes from 8 rows to the next; across K, boxes are 8192 bytes apart. Only the low word of
// a descriptor depends on the address, which counts 16 bytes there.
DEV u32 descriptor_low(u32 at, u32 apart) { return (apart << 16) | ((at & 0x3ffffu) >> 4); }
DEV u64 descriptor_of(u32 low) { return (u64(1) << 62) | (u64(64) << 32) | low; }
DEV u64 descriptor(u32 at, u32 apart) { return descriptor_of(descriptor_low(at, apart)); }

// A number that all lanes of a warp have. What follows from it stays in uniform registers, where instructions take descriptors from.
DEV u32 uniform(u32 v) { return __shfl_sync(0xffffffffu, v, 0); }

// Keeps a sum in its register while products that the compiler does not see are under way.
DEV void settle(f32& sum) { asm volatile("" : "+f"(sum)::"memory"); }
DEV void settle(i32& sum) { asm volatile("" : "+r"(sum)::"memory"); }
