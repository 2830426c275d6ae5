// The instruction mma.sync for each pair of operand types. 32 bytes of the depth are one step, and fragments are laid out alike
// in bytes, whatever the type.
#pragma once
#include "../prelude/types.cuh"

// Registers of operands as the instruction takes them.
struct PlainOperands {
    DEV static u32 operand(u32 x) { return x; }
};

// TF32 has fewer digits than the operands in memory.
struct RoundedOperands {
    DEV static u32 operand(u32 x) {
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x) : "f"(__uint_as_float(x)));
        return x;
    }
};

// `mma_A_B`: `product` adds 16 x 32 bytes of A by 32 bytes of B x 8 to d. SIZE is the size of an element, Sum the type of sums.
#define MMA_INSTRUCTION(A, B, BYTES, SHAPE, SUM, SUM_NAME, REGISTER, OPERANDS)                                                        \
    struct mma_##A##_##B : OPERANDS {                                                                                                  \
        typedef SUM Sum;                                                                                                               \
        static constexpr u32 SIZE = BYTES;                                                                                             \
        DEV static void product(SUM (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {                                                   \
            asm volatile("mma.sync.aligned." SHAPE ".row.col." SUM_NAME "." #A "." #B "." SUM_NAME                                     \
                         " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                            \
                         : REGISTER(d[0]), REGISTER(d[1]), REGISTER(d[2]), REGISTER(d[3])                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                          \
        }                                                                                                                              \
    };

MMA_INSTRUCTION(f16, f16, 2u, "m16n8k16", f32, "f32", "+f", PlainOperands)
MMA_INSTRUCTION(bf16, bf16, 2u, "m16n8k16", f32, "f32", "+f", PlainOperands)
MMA_INSTRUCTION(tf32, tf32, 4u, "m16n8k8", f32, "f32", "+f", RoundedOperands)
MMA_INSTRUCTION(e4m3, e4m3, 1u, "m16n8k32", f32, "f32", "+f", PlainOperands)
MMA_INSTRUCTION(s8, s8, 1u, "m16n8k32", i32, "s32", "+r", PlainOperands)
MMA_INSTRUCTION(s8, u8, 1u, "m16n8k32", i32, "s32", "+r", PlainOperands)
MMA_INSTRUCTION(u8, s8, 1u, "m16n8k32", i32, "s32", "+r", PlainOperands)
MMA_INSTRUCTION(u8, u8, 1u, "m16n8k32", i32, "s32", "+r", PlainOperands)
