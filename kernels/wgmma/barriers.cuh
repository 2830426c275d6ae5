// Barriers in shared memory, by address, and blocks of a cluster.
#pragma once
#include "../prelude/types.cuh"

DEV void barrier_init(u32 at, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}

DEV void barrier_arrive(u32 at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

// Arrives, and says how many bytes copies will bring.
DEV void barrier_expect(u32 at, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}

DEV void barrier_wait(u32 at, u32 parity) {
    asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra over;\n"
                 "bra again;\nover:\n}" ::"r"(at),
                 "r"(parity)
                 : "memory");
}

// A barrier of all threads of a cluster.
DEV void meet() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
DEV void met() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

// Address in a block of the cluster that matches one of this block.
DEV u32 address_in(u32 at, u32 rank) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    return there;
}

// Arrives at a barrier by its address in the cluster.
DEV void barrier_arrive_in(u32 at) { asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(at) : "memory"); }

// Stores four words in a block of the cluster, and counts their bytes at a barrier there, by addresses in the cluster.
DEV void send16(u32 to, const u32 (&v)[4], u32 barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to), "r"(v[0]),
                 "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(barrier)
                 : "memory");
}
