// Exchange of states between blocks whose weights stay on the chip.
//
// New states go to all blocks of a cluster by stores that count their bytes in the receiver's barrier; two buffers take turns, so that
// nobody overwrites what is still read: a block sends states of step k + 1 only after it has those of step k, which their owners sent
// after they had read those of step k - 1. With GRID the "cluster" is blocks of a grid that all run at once: they leave new states
// in scratch memory, and count there who has done so.
#pragma once
#include "units.cuh"
#include "../mma/tiles.cuh"
#include "../wgmma/barriers.cuh"

// Threads of a block.
static constexpr u32 BLOCK = 512u;

DEV void meet_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Memory where blocks of a grid leave states for product e.
template <class K> DEV u8* left_states(const K& k, const RecurrentChipParams& p, u32 cluster, u32 e) {
    return reinterpret_cast<u8*>(k.scratch + p.counters_at + p.counters) + u64(cluster * 2u + e % 2u) * K::STATE_BYTES;
}

// One thread of the input's product clears what blocks of a grid count with.
template <class K> DEV void clear_counters(const K& k, const RecurrentChipParams& p) {
    if constexpr (K::GRID) {
        for (u32 i = 0u; i < p.counters; i++) {
            k.scratch[p.counters_at + i] = 0u;
        }
    }
}

// Counts that this block has left its states.
template <class K> DEV void tell(const K& k, const RecurrentChipParams& p, u32 cluster) {
    if constexpr (K::GRID) {
        __syncthreads();
        if (threadIdx.x == 0u) {
            __threadfence();
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(k.scratch + p.counters_at + cluster) : "memory");
        }
    }
}

// Waits for the states of product e, and takes them over. `Products` says how states are laid out.
template <class Products, class K> DEV void take(const K& k, const RecurrentChipParams& p, u32 cluster, u32 e, u32 columns) {
    constexpr u32 PIECES = K::CLUSTER * K::UNITS * Products::STATE_SIZE / 16u;
    if (threadIdx.x == 0u) {
        u32 done = 0u;
        while (done < e * K::CLUSTER) {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(done) : "l"(k.scratch + p.counters_at + cluster) : "memory");
        }
    }
    __syncthreads();
    const u8* from = left_states(k, p, cluster, e);
    u8* to = block_memory + e % 2u * K::STATE_BYTES;
    for (u32 i = threadIdx.x; i < columns * PIECES; i += BLOCK) {
        const u32 offset = Products::state_offset(i / PIECES, 0u) + i % PIECES * 16u;
        *reinterpret_cast<uint4*>(to + offset) = __ldcg(reinterpret_cast<const uint4*>(from + offset));
    }
    __syncthreads();
}

// Gives 16 bytes of neighbouring units, one in each lane, to all blocks; all lanes of the warp call it.
template <class Products, class K> DEV void share(u8* buffer, u32 offset, f32 value, u32 barrier, bool active) {
    constexpr u32 NEIGHBOURS = Products::NEIGHBOURS;
    const u32 lane = threadIdx.x % 32u;
    u32 v[4];
    Products::gather16(v, value);
    if (!active) {
        return;
    }
    if constexpr (K::CLUSTER == 1u || K::GRID) {
        if (lane % NEIGHBOURS == 0u) {
            *reinterpret_cast<uint4*>(buffer + offset) = make_uint4(v[0], v[1], v[2], v[3]);
        }
    } else {
        const u32 here = address(buffer) + offset;
#pragma unroll
        for (u32 r = 0u; r < K::CLUSTER; r += NEIGHBOURS) {
            const u32 to = r + lane % NEIGHBOURS;
            if (K::CLUSTER % NEIGHBOURS == 0u || to < K::CLUSTER) {
                send16(address_in(here, to), v, address_in(barrier, to));
            }
        }
    }
}
