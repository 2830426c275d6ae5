// Reads of weights that a kernel makes before it waits for the kernels in front of it.
#pragma once
#include "../prelude/types.cuh"

// 16 bytes that nothing writes meanwhile, read where this stands: not later, with the next wait.
DEV uint4 read_here(const void* from) {
    uint4 x;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(from)
                 : "memory");
    return x;
}
