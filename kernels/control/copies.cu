// Copies between the bodies of control flow, and its decisions: what a conditional node of a graph reads. Compiled to PTX,
// which the driver links with its own function for handles: `copies.ptx` beside this file, `scripts/flow_ptx.py` writes it.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

extern "C" __device__ void cudaGraphSetConditional(u64 handle, u32 value);

// Rows of bytes; steps are added for each trip that the loop has made. Without a source they become zero. `kind`: 1 only
// whether the number of trips is odd counts, 2 of the trip that follows, if one does by the count; 4 the address `from` itself
// is written, not what lies there.
struct Move {
    u64 from, to;
    i64 from_step, to_step;
    u64 from_pitch, to_pitch;
    u32 rows, width;
    u32 kind, spare;
};

// Trips made, blocks that are done, whether the loop goes on.
struct State {
    i64 trip;
    u32 done, alive;
};

// One element that a condition reads. `type`: 0 u8 or bool, 1 i8, 2 i32, 3 i64, 4 f16, 5 bf16, 6 f32.
struct Leaf {
    u64 at;
    u32 type, spare;
};

// An operation on earlier results, the leaves first: 0 <, 1 <=, 2 >, 3 >=, 4 ==, 5 and, 6 or, 7 xor, 8 not; 16 more of floats.
struct Step {
    u8 op, a, b, spare;
};

constexpr u32 LEAVES = 4, STEPS = 8, MOVES = 16;

// Nothing is done where `alive` names a zero (its lowest bit counts for other kernels only). `mode`: 1 the loop starts, 2 a trip has been made, 4 decide whether one
// follows, 8 decide for a branch, 16 the count is of 32 bits, 32 the condition is read behind the copies, 64 only an end is
// told, 128 the trip that follows is one further. Without `count` the number is `most`, if that is not negative. A word
// other than zero at `stop`, which the host sets, ends the loop. The
// condition is the last result of `steps`; without leaves it is true.
struct Moves {
    u64 handle;
    u64 alive;
    State* state;
    const void* count;
    i64 most;
    const u32* stop;
    u32 mode, n, leaves, steps;
    Leaf leaf[LEAVES];
    Step step[STEPS];
    Move all[MOVES];
};

template <class T> __device__ inline void copy(const Move& m, u64 from, u64 to, u32 first, u32 step) {
    const u32 width = m.width / sizeof(T);
#pragma unroll 1
    for (u64 at = first; at < u64(width) * m.rows; at += step) {
        const u64 row = at / width;
        const u64 col = at % width * sizeof(T);
        T* p = reinterpret_cast<T*>(to + row * m.to_pitch + col);
        *p = m.from == 0 ? T{} : *reinterpret_cast<const T*>(from + row * m.from_pitch + col);
    }
}

__device__ inline void copy_all(const Moves& m, i64 trip) {
    const u32 first = blockIdx.x * blockDim.x + threadIdx.x;
    const u32 step = gridDim.x * blockDim.x;
    const i64 next = trip + ((m.mode & 128) != 0 ? 1 : 0);
#pragma unroll 1
    for (u32 i = 0; i < m.n; i++) {
        const Move& v = m.all[i];
        if ((v.kind & 2) != 0 && next >= m.most) {
            continue;
        }
        const i64 of = (v.kind & 2) != 0 ? next : (v.kind & 1) != 0 ? trip & 1 : trip;
        const u64 from = v.from + u64(v.from_step * of);
        const u64 to = v.to + u64(v.to_step * of);
        if ((v.kind & 4) != 0) {
            if (first == 0) {
                *reinterpret_cast<u64*>(to) = from;
            }
            continue;
        }
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
}

// The bits of an element, and those of its neighbours in a word.
__device__ inline u64 bits(const Leaf& leaf) {
    const u64 word = leaf.at & ~u64(3);
    const u64 high = leaf.type == 3 ? *reinterpret_cast<const volatile u32*>(word + 4) : 0;
    return *reinterpret_cast<const volatile u32*>(word) | high << 32;
}

// Their meaning: an integer, or the bits of a double.
__device__ inline i64 meaning(u64 word, const Leaf& leaf) {
    const u64 v = word >> (leaf.at % 4 * 8);
    float f = 0.0f;
    switch (leaf.type) {
        case 0: return u8(v);
        case 1: return i64(static_cast<signed char>(v));
        case 2: return i64(static_cast<int>(v));
        case 3: return i64(v);
        case 4: asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(u16(v))); break;
        case 5: f = __uint_as_float(u32(v) << 16); break;
        default: f = __uint_as_float(u32(v)); break;
    }
    return __double_as_longlong(double(f));
}

template <class T> __device__ inline bool compare(u32 op, T a, T b) {
    switch (op) {
        case 0: return a < b;
        case 1: return a <= b;
        case 2: return a > b;
        case 3: return a >= b;
        default: return a == b;
    }
}

__device__ inline bool perform(u32 op, i64 a, i64 b) {
    if (op >= 16) {
        return compare(op - 16, __longlong_as_double(a), __longlong_as_double(b));
    }
    switch (op) {
        case 5: return (a & b) != 0;
        case 6: return (a | b) != 0;
        case 7: return (a ^ b) != 0;
        case 8: return a == 0;
        default: return compare(op, a, b);
    }
}

__device__ inline void read(const Moves& m, u64 (&raw)[LEAVES]) {
#pragma unroll
    for (u32 i = 0; i < LEAVES; i++) {
        raw[i] = i < m.leaves ? bits(m.leaf[i]) : 0;
    }
}

__device__ inline bool holds(const Moves& m, const u64 (&raw)[LEAVES]) {
    if (m.leaves == 0) {
        return true;
    }
    if (m.steps == 0) {
        return meaning(raw[0], m.leaf[0]) != 0;
    }
    i64 r[LEAVES + STEPS];
#pragma unroll
    for (u32 i = 0; i < LEAVES; i++) {
        r[i] = i < m.leaves ? meaning(raw[i], m.leaf[i]) : 0;
    }
#pragma unroll 1
    for (u32 i = 0; i < m.steps && i < STEPS; i++) {
        const Step s = m.step[i];
        r[LEAVES + i] = perform(s.op, r[s.a], r[s.b]);
    }
    return r[LEAVES + m.steps - 1] != 0;
}

__device__ inline i64 limit(const Moves& m) {
    if (m.count == nullptr) {
        return m.most;
    }
    const i64 n = (m.mode & 16) != 0 ? i64(*static_cast<const volatile int*>(m.count))
                                     : *static_cast<const volatile i64*>(m.count);
    return n < 0 ? 0 : n;
}

extern "C" __global__ void __launch_bounds__(256) moves(const __grid_constant__ Moves m) {
    const bool decides = (m.mode & 15) != 0;
    // Both instructions are of sm_90; the host leaves them out for others. What follows a decision waits for it.
    if (decides) {
        asm volatile("griddepcontrol.launch_dependents;");
    }
    asm volatile("griddepcontrol.wait;" ::: "memory");
    // All reads are on their way before the first is waited for.
    const u32 alive = m.alive == 0 ? 1 : *reinterpret_cast<const volatile u32*>(m.alive & ~u64(1));
    const i64 trip = m.state == nullptr || (m.mode & 1) != 0 ? 0 : *static_cast<const volatile i64*>(&m.state->trip);
    u64 raw[LEAVES] = {};
    i64 most = -1;
    if (decides && threadIdx.x == 0) {
        most = limit(m);
        if ((m.mode & 32) == 0) {
            read(m, raw);
        }
    }
    if (alive == 0) {
        return;
    }
    copy_all(m, trip);
    if (!decides) {
        return;
    }
    // The last block decides: all have read the number of trips, and what is read behind the copies is there.
    if (m.n > 0) {
        if (gridDim.x > 1 || (m.mode & 32) != 0) {
            __threadfence();
        }
        __syncthreads();
    }
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
    if ((m.mode & 32) != 0) {
        read(m, raw);
    }
    const i64 next = (m.mode & 2) != 0 ? trip + 1 : trip;
    const bool counted = (m.mode & 4) == 0 || most < 0 || next < most;
    // The host's memory is read once a body, by one thread.
    const bool stopped = m.stop != nullptr && *static_cast<const volatile u32*>(m.stop) != 0;
    const bool goes_on = counted && !stopped && holds(m, raw);
    if (m.state != nullptr) {
        m.state->trip = next;
        m.state->alive = goes_on ? 1 : 0;
    }
    if ((m.mode & 12) != 0 && (!goes_on || (m.mode & 64) == 0)) {
        cudaGraphSetConditional(m.handle, goes_on ? 1 : 0);
    }
}
