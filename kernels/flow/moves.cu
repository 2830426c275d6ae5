// Copies between the bodies of control flow, and its decisions: what a conditional node of a graph reads. Compiled to PTX,
// which the driver links with its own function for handles: `moves.ptx` beside this file, `scripts/flow_ptx.py` writes it.
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

extern "C" __device__ void cudaGraphSetConditional(u64 handle, u32 value);

// Rows of bytes; steps are added for each trip that the loop has made. Without a source they become zero.
struct Move {
    u64 from, to;
    i64 from_step, to_step;
    u64 from_pitch, to_pitch;
    u32 rows, width;
};

// Trips made, and blocks that are done.
struct State {
    i64 trip;
    u32 done;
};

// `mode`: 1 the loop starts, 2 a trip has been made, 4 decide whether one follows, 8 decide for a branch, 16 the count is of
// 32 bits. Without `count` the number is `most`, if that is not negative.
struct Moves {
    u64 handle;
    State* state;
    const void* count;
    const u8* flag;
    i64 most;
    u32 mode, n;
    Move all[32];
};

template <class T> __device__ inline void copy(const Move& m, u64 from, u64 to, u32 first, u32 step) {
    const u32 width = m.width / sizeof(T);
    for (u64 at = first; at < u64(width) * m.rows; at += step) {
        const u64 row = at / width;
        const u64 col = at % width * sizeof(T);
        T* p = reinterpret_cast<T*>(to + row * m.to_pitch + col);
        *p = m.from == 0 ? T{} : *reinterpret_cast<const T*>(from + row * m.from_pitch + col);
    }
}

__device__ inline void decide(const Moves& m, i64 trip) {
    bool goes_on = true;
    if ((m.mode & 4) != 0) {
        i64 most = m.most;
        if (m.count != nullptr) {
            most = (m.mode & 16) != 0 ? *static_cast<const volatile int*>(m.count)
                                      : *static_cast<const volatile i64*>(m.count);
            most = most < 0 ? 0 : most;
        }
        goes_on = most < 0 || trip < most;
    }
    if (m.flag != nullptr) {
        goes_on = goes_on && *static_cast<const volatile u8*>(m.flag) != 0;
    }
    cudaGraphSetConditional(m.handle, goes_on ? 1 : 0);
}

extern "C" __global__ void __launch_bounds__(256) moves(const __grid_constant__ Moves m) {
    const u32 first = blockIdx.x * 256 + threadIdx.x;
    const u32 step = gridDim.x * 256;
    const i64 trip = m.state == nullptr || (m.mode & 1) != 0 ? 0 : m.state->trip;
    for (u32 i = 0; i < m.n; i++) {
        const Move& v = m.all[i];
        const u64 from = v.from + u64(v.from_step * trip);
        const u64 to = v.to + u64(v.to_step * trip);
        const u64 lines = v.from == 0 ? to | v.to_pitch : from | to | v.from_pitch | v.to_pitch;
        const u64 all = lines | v.width;
        if (all % 16 == 0) {
            copy<uint4>(v, from, to, first, step);
        } else if (all % 4 == 0) {
            copy<u32>(v, from, to, first, step);
        } else {
            copy<u8>(v, from, to, first, step);
        }
    }
    if ((m.mode & 15) == 0) {
        return;
    }
    // The last block decides: the flag may be what others copy, and all have read the number of trips.
    __threadfence();
    __syncthreads();
    if (threadIdx.x != 0) {
        return;
    }
    if (gridDim.x > 1) {
        if (atomicAdd(&m.state->done, 1) + 1 < gridDim.x) {
            return;
        }
        m.state->done = 0;
        __threadfence();
    }
    const i64 next = (m.mode & 2) != 0 ? trip + 1 : trip;
    if (m.state != nullptr) {
        m.state->trip = next;
    }
    if ((m.mode & 12) != 0) {
        decide(m, next);
    }
}
