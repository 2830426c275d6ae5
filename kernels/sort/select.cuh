// Finds the first slots of many by their digits, from the highest one on: a histogram of a digit tells in which bin the last wanted
// slot is, and the next digit is that of the slots of this bin alone. Positions have digits too, so that slots of equal keys are
// told apart, and what is found does not depend on the order of threads.
#pragma once
#include "block.cuh"

constexpr u32 DIGIT_BITS = 11u;
constexpr u32 BINS = 1u << DIGIT_BITS;

// The bin that contains number `need` (from 1 on) of what is counted in `bins`.
struct Bin {
    u32 digit;
    // Counts of the bins in front of it.
    u32 before;
    u32 count;
};

// Sums of the numbers of the threads in front of this one, in a block of T threads.
template <u32 T> DEV u32 sum_in_front(u32 own) {
    __shared__ u32 of_warps[T / 32u];
    const u32 lane = threadIdx.x % 32u;
    const u32 warp = threadIdx.x / 32u;
    u32 sum = own;
#pragma unroll
    for (u32 d = 1u; d < 32u; d *= 2u) {
        const u32 other = __shfl_up_sync(0xffffffffu, sum, d);
        sum += lane >= d ? other : 0u;
    }
    __syncthreads();
    if (lane == 31u) {
        of_warps[warp] = sum;
    }
    __syncthreads();
    u32 front = 0u;
    for (u32 w = 0u; w < warp; w++) {
        front += of_warps[w];
    }
    return front + sum - own;
}

template <u32 T> DEV Bin find_bin(const u32* bins, u32 need) {
    constexpr u32 OWN = BINS / T;
    __shared__ Bin found;
    const u32 first = threadIdx.x * OWN;
    u32 own = 0u;
#pragma unroll
    for (u32 i = 0u; i < OWN; i++) {
        own += bins[first + i];
    }
    u32 front = sum_in_front<T>(own);
    if (front < need && need <= front + own) {
        u32 i = 0u;
        while (front + bins[first + i] < need) {
            front += bins[first + i];
            i++;
        }
        found = Bin{first + i, front, bins[first + i]};
    }
    __syncthreads();
    return found;
}

// The first slots of many: those whose masked keys are less than `key`, and those of equal ones whose masked positions are `place`
// at most.
template <class Key> struct Cut {
    Key key = 0u;
    Key key_mask = 0u;
    u32 place = 0u;
    u32 place_mask = 0u;
    DEV bool has(Key k, u32 at) const {
        const Key masked = k & key_mask;
        return masked < key || (masked == key && (at & place_mask) <= place);
    }
};

// A cut that has the first `kept` slots of `from`, and `enough` at most, which are not less than `kept`. There are more. Positions
// have `place_bits` bits.
template <u32 T, class K, class From>
DEV Cut<typename K::Key> find_cut(const K&, const From& from, u32 kept, u32 enough, u32 place_bits) {
    typedef typename K::Key Key;
    __shared__ u32 bins[BINS];
    Cut<Key> cut;
    u32 need = kept;
    u32 below = 0u;
    u32 key_left = K::KEY_BITS;
    u32 place_left = place_bits;
    for (bool found = false; !found;) {
        for (u32 i = threadIdx.x; i < BINS; i += T) {
            bins[i] = 0u;
        }
        __syncthreads();
        const bool of_key = key_left > 0u;
        const u32 left = of_key ? key_left : place_left;
        const u32 width = ::min(left, DIGIT_BITS);
        const u32 shift = left - width;
        from.template each<T>([&](Key k, u32 at) {
            if ((k & cut.key_mask) == cut.key && (at & cut.place_mask) == cut.place) {
                const u32 digit = (of_key ? u32(k >> shift) : at >> shift) & ((1u << width) - 1u);
                atomicAdd(&bins[digit], 1u);
            }
        });
        __syncthreads();
        const Bin bin = find_bin<T>(bins, need);
        if (of_key) {
            cut.key |= Key(bin.digit) << shift;
            cut.key_mask |= ((Key(1u) << width) - 1u) << shift;
            key_left = shift;
        } else {
            cut.place |= bin.digit << shift;
            cut.place_mask |= ((1u << width) - 1u) << shift;
            place_left = shift;
        }
        below += bin.before;
        need -= bin.before;
        found = below + bin.count <= enough || (key_left == 0u && place_left == 0u);
        __syncthreads();
    }
    return cut;
}

// Puts the first `kept` slots of `from`, and some of those after them, into `slots` in no particular order: at most ROOM, which is at
// least `kept`. Returns their number.
template <u32 T, u32 ROOM, class K, class From, class S>
DEV u32 select_slots(const K& k, const From& from, u32 kept, u32 place_bits, S* slots) {
    typedef typename K::Key Key;
    __shared__ u32 taken;
    // More than these are not worth sorting.
    const u32 enough = ::min(ROOM, ::max(2u * kept, 256u));
    Cut<Key> cut;
    if (from.count() > enough) {
        cut = find_cut<T>(k, from, kept, enough, place_bits);
    }
    if (threadIdx.x == 0u) {
        taken = 0u;
    }
    __syncthreads();
    from.template each<T>([&](Key key, u32 at) {
        if (cut.has(key, at)) {
            slots[atomicAdd(&taken, 1u)] = slot<S>(key, at);
        }
    });
    __syncthreads();
    return taken;
}
