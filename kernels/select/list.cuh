// A list in scratch memory of the numbers that a kernel keeps, in order: blocks count those of their runs, then write them after
// those of the runs in front. Their count is a size for the host. The counts of the runs are elsewhere there.
#pragma once
#include "../sort/select.cuh"

struct KeptRunsParams {
    u32 count;
    u32 run;
    u32 runs;
    u32 counts;
};

// Numbers of a thread at a time.
constexpr u32 KEPT_EACH = 8u;

// The numbers from `first` on, below `end`, that are kept: a bit each.
template <class K> DEV u32 kept_bits(const K& k, u32 first, u32 end) {
    u32 bits = 0u;
#pragma unroll
    for (u32 i = 0u; i < KEPT_EACH; i++) {
        if (first < end && i < end - first && k.is_kept(first + i)) {
            bits |= 1u << i;
        }
    }
    return bits;
}

template <class K> DEV void count_runs(const K& k) {
    const auto& p = params<KeptRunsParams>(k);
    const u32 start = blockIdx.x * p.run;
    const u32 size = ::min(p.run, p.count - start);
    u32 own = 0u;
    for (u32 i = threadIdx.x * KEPT_EACH; i < size; i += 256u * KEPT_EACH) {
        own += u32(__popc(kept_bits(k, start + i, start + size)));
    }
    const u32 front = sum_in_front<256u>(own);
    if (threadIdx.x == 255u) {
        k.scratch[p.counts + blockIdx.x] = front + own;
    }
}

template <class K> DEV void list_runs(const K& k) {
    __shared__ u32 next;
    const auto& p = params<KeptRunsParams>(k);
    const u32 start = blockIdx.x * p.run;
    const u32 size = ::min(p.run, p.count - start);
    u32 own = 0u;
    for (u32 r = threadIdx.x; r < blockIdx.x; r += 256u) {
        own += k.scratch[p.counts + r];
    }
    const u32 others = sum_in_front<256u>(own);
    if (threadIdx.x == 255u) {
        next = others + own;
    }
    __syncthreads();
    u32 at = next;
    for (u32 first = 0u; first < size; first += 256u * KEPT_EACH) {
        const u32 from = start + first + threadIdx.x * KEPT_EACH;
        const u32 bits = kept_bits(k, from, start + size);
        const u32 mine = u32(__popc(bits));
        u32 to = at + sum_in_front<256u>(mine);
        if (threadIdx.x == 255u) {
            next = to + mine;
        }
        for (u32 left = bits; left != 0u; left &= left - 1u) {
            k.scratch[to] = from + u32(__ffs(i32(left))) - 1u;
            to++;
        }
        __syncthreads();
        at = next;
    }
    if (blockIdx.x + 1u == p.runs && threadIdx.x == 0u) {
        k.sizes[0] = at;
    }
}
