// Instructions of tensor cores, and copies into shared memory. `T` is the shape of a block's work; f32 goes by TF32.
#pragma once
#include "../prelude/storage.cuh"
#include "shape.cuh"

DEV u32 address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

// 16 bytes from memory, or zeros.
DEV void copy16(void* to, const void* from, bool inside) {
    const u32 bytes = inside ? 16u : 0u;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address(to)), "l"(from), "r"(bytes) : "memory");
}

DEV void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most N groups of copies are on their way.
template <u32 N> DEV void arrived() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Converts four bytes of elements to an operand of an instruction.
template <class K> DEV u32 operand(u32 x) {
    if constexpr (sizeof(typename K::Cell) == 4u) {
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x) : "f"(__uint_as_float(x)));
    }
    return x;
}

// Two numbers side by side, as elements of 16 bits.
template <class K> DEV u32 pair(f32 low, f32 high) {
    if constexpr (K::BF16) {
        return f32_to_bf16x2(low, high);
    } else {
        return f32_to_f16x2(low, high);
    }
}

// Two neighbouring results.
template <class K> DEV void put_pair(u8* to, f32 a, f32 b) {
    if constexpr (sizeof(typename K::Cell) == 4u) {
        *reinterpret_cast<float2*>(to) = float2{a, b};
    } else {
        *reinterpret_cast<u32*>(to) = pair<K>(a, b);
    }
}

// d += a b for 16 x 32 bytes by 32 bytes x 8.
template <class K> DEV void product(f32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    if constexpr (sizeof(typename K::Cell) == 4u) {
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else if constexpr (K::BF16) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

template <class K> DEV void matrices(u32 (&f)[4], const u8* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(address(p))
                 : "memory");
#pragma unroll
    for (u32 r = 0u; r < 4u; r++) {
        f[r] = operand<K>(f[r]);
    }
}

DEV void transposed(u32 (&f)[4], const u8* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(address(p))
                 : "memory");
}

DEV f32 power_of_two(f32 x) {
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// LINES lines of a tile, where `line(k)` gives the address of the k-th, null outside. A line has `size` elements, and DEPTH in the
// tile. `whole`: addresses and sizes allow copies of 16 bytes.
template <class K, u32 LINES, u32 DEPTH, class Line>
DEV void load_lines(u8* tile, const typename K::Cell* any, u32 size, bool whole, Line line) {
    typedef Shape<K> T;
    typedef typename K::Cell Cell;
    constexpr u32 COPIES = DEPTH / T::PER_COPY;
    if (whole) {
        for (u32 e = T::copier(); e < LINES * COPIES; e += T::COPIERS) {
            const Cell* from = line(e / COPIES);
            const u32 d = e % COPIES * T::PER_COPY;
            const bool inside = from != nullptr && d < size;
            copy16(tile + T::template place<LINES, DEPTH>(e / COPIES, e % COPIES), inside ? from + d : any, inside);
        }
        return;
    }
    for (u32 e = T::copier(); e < LINES * DEPTH; e += T::COPIERS) {
        const Cell* from = line(e / DEPTH);
        const u32 d = e % DEPTH;
        const bool inside = from != nullptr && d < size;
        u8* const chunk = tile + T::template place<LINES, DEPTH>(e / DEPTH, d / T::PER_COPY);
        reinterpret_cast<Cell*>(chunk)[d % T::PER_COPY] = inside ? from[d] : Cell(0);
    }
}

// Loads lines that start at `from` and are `by` elements apart; lines from number `lines` on are zeros.
template <class K, u32 LINES, u32 DEPTH>
DEV void load_rows(u8* tile, const typename K::Cell* from, u32 by, u32 lines, u32 size, bool whole) {
    typedef Shape<K> T;
    typedef typename K::Cell Cell;
    constexpr u32 COPIES = DEPTH / T::PER_COPY;
    if constexpr (T::COPIERS % COPIES == 0u) {
        constexpr u32 BELOW = T::COPIERS / COPIES;
        if (whole) {
            const u32 line = T::copier() / COPIES;
            const u32 d = T::copier() % COPIES * T::PER_COPY;
            const Cell* p = from + u64(line) * by + d;
            const u64 step = u64(BELOW) * by;
            const bool all = lines >= LINES && size == DEPTH;
#pragma unroll
            for (u32 k = 0u; k < (LINES + BELOW - 1u) / BELOW; k++) {
                if (LINES % BELOW == 0u || line + k * BELOW < LINES) {
                    const bool inside = all || (line + k * BELOW < lines && d < size);
                    copy16(tile + T::template place<LINES, DEPTH>(line + k * BELOW, T::copier() % COPIES), inside ? p + k * step : from, inside);
                }
            }
            return;
        }
    }
    auto line = [&](u32 k) -> const Cell* { return k < lines ? from + u64(k) * by : nullptr; };
    load_lines<K, LINES, DEPTH>(tile, from, size, whole, line);
}
