// A kernel's view of its launch. Kernels are function templates over `K`, the structure of a generated unit: it has the
// bindings (`k.x0(at)` loads an element of input 0, `k.emit0(at, v)` stores one of output 0), the functions and constants that a
// kernel's file asks for, and the words of its parameters.
#pragma once
#include "types.cuh"

// Numbers behind the fields of a structure of parameters.
struct List {
    u32 first, count;
};

// A number of 64 bits that lies at a multiple of 4 bytes.
struct Long {
    u32 low, high;
    DEV operator i64() const { return ci64(high, low); }
};

// The parameters of the launch.
template <class P, class K> DEV const P& params(const K& k) { return *reinterpret_cast<const P*>(&k.words[0]); }

// Number i of a list.
template <class K> DEV u32 item(const K& k, List list, u32 i) { return k.word(list.first + i); }
template <class K> DEV i32 item_i32(const K& k, List list, u32 i) { return i32(item(k, list, i)); }
template <class K> DEV f32 item_f32(const K& k, List list, u32 i) { return cf(item(k, list, i)); }
template <class K> DEV i64 item_i64(const K& k, List list, u32 i) {
    return ci64(k.word(list.first + i * 2u + 1u), k.word(list.first + i * 2u));
}

// Place of element `at` of an array of sizes `dims`, the last one innermost, by these strides.
template <class K> DEV u32 strided(const K& k, List dims, List strides, u32 at) {
    u32 found = 0u;
    for (u32 d = dims.count; d > 0u; d--) {
        const u32 n = item(k, dims, d - 1u);
        found += at % n * item(k, strides, d - 1u);
        at = at / n;
    }
    return found;
}

// Whether the kernel is switched off by a word in memory. The lowest bit of the word's address tells that it may be read before the
// kernels in front are done: `ahead` is 1 in the call before that, and 0 in the one after it.
template <class P> DEV bool off(const P& p, u64 ahead) {
    return p.alive != 0u && (p.alive & 1u) == ahead && *reinterpret_cast<const volatile u32*>(p.alive - ahead) == 0u;
}

// A kernel may be on the device before the kernels in front of it are done: it calls `depend` before it touches what they
// write. The next one comes when all blocks of this one have ended or called `release`: worth it where there is one block a
// multiprocessor (of more, those of the next one that come early gather on the multiprocessors that are free then, and are
// slow together).
#if __CUDA_ARCH__ >= 900
DEV void depend() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEV void release() { asm volatile("griddepcontrol.launch_dependents;"); }
#else
DEV void depend() {}
DEV void release() {}
#endif

// Whether the next kernel has work that does not depend on this one, so that this one calls `release` as soon as those in front of it are
// done. Before that, blocks of the next one would gather on the multiprocessors that those in front leave free.
template <class P> DEV bool yields(const P& p) { return p.marks >> 31u != 0u; }
