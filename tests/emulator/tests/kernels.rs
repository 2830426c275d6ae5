//! Kernels in PTX: what instructions compute, how threads wait for each other, and what is refused.

#![allow(clippy::unwrap_used, reason = "a test")]

use kiln_emulator::launch::Launch;
use kiln_emulator::memory::Global;
use kiln_emulator::module::Module;
use std::cell::RefCell;

thread_local! {
    static LIVE: RefCell<(u64, u64)> = const { RefCell::new((0, 0)) };
}

unsafe extern "C" fn live(address: u64, first: *mut u64, end: *mut u64) -> i32 {
    let (a, b) = LIVE.with(|l| *l.borrow());
    // SAFETY: callers give valid places.
    unsafe {
        *first = a;
        *end = b;
    }
    i32::from(address >= a && address < b)
}

unsafe extern "C" fn undecided(_: u64, _: u32) {}

/// Runs `body`, which has the address of the words in `%rd1` and the number of the thread in `%r1`, and returns the words.
fn run_with(body: &str, head: &str, threads: u32, words: &[u32], seed: u64) -> Result<Vec<u32>, String> {
    let text = format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(\n.param .align 8 .b8 k_param_0[8]\n)\n{head}\n{{\n\
         .reg .pred %p<9>;\n.reg .b16 %rs<9>;\n.reg .b32 %r<40>;\n.reg .f32 %f<40>;\n.reg .b64 %rd<20>;\n.reg .f64 %fd<9>;\n\
         ld.param.u64 %rd1, [k_param_0];\nmov.u32 %r1, %tid.x;\n{body}\nret;\n}}\n"
    );
    let module = Module::read(&text)?;
    let mut memory = words.to_vec();
    let at = memory.as_mut_ptr() as u64;
    LIVE.with(|l| *l.borrow_mut() = (at, at + memory.len() as u64 * 4));
    let parameter = at.to_le_bytes();
    let kernel = &module.kernels["k"];
    let (decide, together) = (undecided as unsafe extern "C" fn(u64, u32), false);
    let launch = Launch {
        kernel,
        module: &module,
        blocks: 1,
        threads,
        shared: 0,
        together,
        parameter: &parameter,
        decide,
        seed,
    };
    launch.run(&mut Global::new(live, &module.variables))?;
    Ok(memory)
}

fn run(body: &str, threads: u32, words: &[u32]) -> Result<Vec<u32>, String> {
    run_with(body, "", threads, words, 1)
}

/// The result in `%r2` of instructions on `%r3` and `%r4`.
fn computed(body: &str, a: u32, b: u32) -> u32 {
    let text = format!(
        "ld.global.u32 %r3, [%rd1];\nld.global.u32 %r4, [%rd1+4];\n{body}\nst.global.u32 [%rd1+8], %r2;"
    );
    run(&text, 1, &[a, b, 0]).unwrap()[2]
}

#[test]
fn integers_are_computed_as_the_device_does() {
    let cases: &[(&str, u32, u32, u32)] = &[
        ("sub.s32 %r2, %r3, %r4;", 1, 3, -2_i32 as u32),
        ("mul.hi.u32 %r2, %r3, %r4;", u32::MAX, u32::MAX, u32::MAX - 1),
        ("mul.hi.s32 %r2, %r3, %r4;", -3_i32 as u32, 5, u32::MAX),
        ("div.s32 %r2, %r3, %r4;", -7_i32 as u32, 2, -3_i32 as u32),
        ("rem.s32 %r2, %r3, %r4;", -7_i32 as u32, 2, u32::MAX),
        ("div.u32 %r2, %r3, %r4;", 7, 0, u32::MAX),
        ("shr.s32 %r2, %r3, %r4;", 0x8000_0000, 40, u32::MAX),
        ("shr.u32 %r2, %r3, %r4;", 0x8000_0000, 32, 0),
        ("shl.b32 %r2, %r3, %r4;", 1, 31, 0x8000_0000),
        ("shf.r.wrap.b32 %r2, %r3, %r4, 8;", 0x1122_3344, 0x5566_7788, 0x8811_2233),
        ("shf.l.wrap.b32 %r2, %r3, %r4, 8;", 0x1122_3344, 0x5566_7788, 0x6677_8811),
        ("prmt.b32 %r2, %r3, %r4, 0x5410;", 0x1122_3344, 0x5566_7788, 0x7788_3344),
        ("prmt.b32 %r2, %r3, %r4, 0x9999;", 0x0000_8000, 0, u32::MAX),
        ("cvt.pack.sat.s8.s32.b32 %r2, %r3, %r4, %r3;", 0x1122_3344, -300_i32 as u32, 0x3344_7f80),
        ("cvt.pack.sat.u8.s32.b32 %r2, %r3, %r4, 0;", 0x1234, -1_i32 as u32, 0xff00),
        ("bfe.s32 %r2, %r3, 4, 4;", 0xf0, 0, u32::MAX),
        ("bfi.b32 %r2, %r3, %r4, 8, 8;", 0xab, 0x1111_1111, 0x1111_ab11),
        ("bfind.shiftamt.u32 %r2, %r3;", 0x0001_0000, 0, 15),
        ("bfind.u32 %r2, %r3;", 0, 0, u32::MAX),
        ("lop3.b32 %r2, %r3, %r4, %r3, 0x3c;", 0xff00, 0x0ff0, 0xf0f0),
        ("cvt.s32.s8 %r2, %r3;", 0x80, 0, -128_i32 as u32),
        ("cvt.sat.u8.s32 %r2, %r3;", -5_i32 as u32, 0, 0),
        ("max.s32 %r2, %r3, %r4;", u32::MAX, 1, 1),
        ("mad.lo.s32 %r2, %r3, %r4, -1;", 3, 4, 11),
        ("dp4a.s32.s32 %r2, %r3, %r4, 7;", 0xff01_02fe, 0x0102_0304, 7 - 1 + 2 + 6 - 8),
    ];
    for &(body, a, b, wanted) in cases {
        assert_eq!(computed(body, a, b), wanted, "{body}");
    }
}

#[test]
fn an_instruction_changes_neighbours() {
    let f = |x: f32| x.to_bits();
    let text =
        "mov.f32 %f1, 0f3F800000;\nmov.f32 %f2, 0f40000000;\nred.global.add.v2.f32 [%rd1+4], {%f1, %f2};";
    assert_eq!(run(text, 3, &[7, f(0.5), f(1.0), 9]).unwrap(), [7, f(3.5), f(7.0), 9]);
}

#[test]
fn floats_round_as_the_instruction_says() {
    let f = |x: f32| x.to_bits();
    let of = |body: &str| format!("mov.b32 %f1, %r3;\nmov.b32 %f2, %r4;\n{body}\nmov.b32 %r2, %f3;");
    let large = 16_777_216.0;
    let cases: &[(&str, f32, f32, u32)] = &[
        ("add.rz.f32 %f3, %f1, %f2;", large, 1.5, f(large)),
        ("add.rn.f32 %f3, %f1, %f2;", large, 1.5, f(large + 2.0)),
        ("fma.rm.f32 %f3, %f1, %f2, 0f3F800000;", large, -1.0, f(-large + 1.0)),
        // A product that is rounded would end as zero.
        ("fma.rn.f32 %f3, %f1, %f1, %f2;", 1.000_000_1, -1.000_000_2, f(1.421_085_5e-14)),
        ("min.NaN.f32 %f3, %f1, %f2;", f32::NAN, 1.0, 0x7fff_ffff),
        ("min.f32 %f3, %f1, %f2;", f32::NAN, 1.0, f(1.0)),
        ("mul.rn.ftz.f32 %f3, %f1, %f2;", 1e-30, 1e-12, 0),
        ("copysign.f32 %f3, %f1, %f2;", -0.0, 3.0, f(-3.0)),
        ("cvt.rni.f32.f32 %f3, %f1;", 2.5, 0.0, f(2.0)),
        ("cvt.sat.f32.f32 %f3, %f1;", f32::NAN, 0.0, 0),
        ("cvt.rna.tf32.f32 %r5, %f1;\nmov.b32 %f3, %r5;", f32::from_bits(0x3f80_1000), 0.0, 0x3f80_2000),
        ("cvt.rn.f16.f32 %rs1, %f1;\ncvt.f32.f16 %f3, %rs1;", 1e-8, 0.0, 0),
        ("cvt.rn.bf16x2.f32 %r5, %f1, %f2;\nmov.b32 %f3, %r5;", 1.0, 2.0, 0x3f80_4000),
        (
            "cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2;\ncvt.u32.u16 %r5, %rs1;\nmov.b32 %f3, %r5;",
            1e9,
            1.0,
            0x7e38,
        ),
    ];
    for &(body, a, b, wanted) in cases {
        assert_eq!(computed(&of(body), f(a), f(b)), wanted, "{body}");
    }
    assert_eq!(computed("mov.b32 %f1, %r3;\ncvt.rzi.s32.f32 %r2, %f1;", f(f32::NAN), 0), 0);
    assert_eq!(computed("mov.b32 %f1, %r3;\ncvt.rzi.s32.f32 %r2, %f1;", f(1e20), 0), i32::MAX as u32);
}

const MINE: &str = "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n";

#[test]
fn threads_that_part_come_together_again() {
    // Threads run the loop as often as their number says; then all of them shuffle.
    let body = format!(
        "{MINE}mov.u32 %r2, 0;\nmov.u32 %r3, 0;\nagain:\nsetp.ge.u32 %p1, %r3, %r1;\n@%p1 bra over;\nadd.s32 %r2, %r2, %r3;\n\
         add.s32 %r3, %r3, 1;\nbra again;\nover:\nshfl.sync.bfly.b32 %r4|%p2, %r2, 1, 31, -1;\nst.global.u32 [%rd3], %r4;"
    );
    let found = run(&body, 32, &[0; 32]).unwrap();
    let sum = |n: u32| n * n.saturating_sub(1) / 2;
    assert_eq!(found, (0..32).map(|n| sum(n ^ 1)).collect::<Vec<u32>>());
}

#[test]
fn votes_reductions_and_matches_see_all_threads() {
    let body = format!(
        "{MINE}and.b32 %r2, %r1, 3;\nsetp.eq.s32 %p1, %r2, 1;\nvote.sync.ballot.b32 %r3, %p1, -1;\n\
         redux.sync.add.u32 %r4, %r1, -1;\nmatch.any.sync.b32 %r5, %r2, -1;\nadd.s32 %r6, %r3, %r4;\nxor.b32 %r6, %r6, %r5;\n\
         st.global.u32 [%rd3], %r6;"
    );
    let wanted = |l: u32| 0x2222_2222_u32.wrapping_add(496) ^ (0x1111_1111 << (l & 3));
    assert_eq!(run(&body, 32, &[0; 32]).unwrap(), (0..32).map(wanted).collect::<Vec<u32>>());
}

/// Each thread writes a word and reads that of a thread of another warp.
fn exchange(barrier: &str) -> String {
    format!(
        ".shared .align 4 .b8 s[512];\n{MINE}mov.u32 %r2, s;\nshl.b32 %r3, %r1, 2;\nadd.s32 %r4, %r2, %r3;\nst.shared.u32 [%r4], %r1;\n\
         {barrier}\nxor.b32 %r5, %r1, 96;\nshl.b32 %r5, %r5, 2;\nadd.s32 %r5, %r2, %r5;\nld.shared.u32 %r6, [%r5];\n\
         st.global.u32 [%rd3], %r6;"
    )
}

#[test]
fn barriers_order_warps_and_missing_ones_show() {
    let wanted: Vec<u32> = (0..128).map(|t| t ^ 96).collect();
    for seed in 1..20 {
        let found = |barrier| run_with(&exchange(barrier), "", 128, &[0; 128], seed).unwrap();
        assert_eq!(found("bar.sync 0;"), wanted);
        assert_eq!(found("barrier.sync 1, 128;"), wanted);
        assert_ne!(found(""), wanted, "seed {seed}");
    }
}

#[test]
fn barriers_in_shared_memory_count_threads() {
    // The last warp waits for all others, which arrive.
    let barrier = "mov.u32 %r10, b;\nsetp.ne.s32 %p3, %r1, 0;\n@%p3 bra made;\nmbarrier.init.shared::cta.b64 [%r10], 128;\nmade:\n\
                   bar.sync 0;\nmbarrier.arrive.shared::cta.b64 _, [%r10];\nwaiting:\n\
                   mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r10], 0;\n@%p4 bra done;\nbra waiting;\ndone:";
    let body = format!(".shared .align 8 .b8 b[8];\n{}", exchange(barrier));
    for seed in 1..9 {
        let wanted: Vec<u32> = (0..128).map(|t| t ^ 96).collect();
        assert_eq!(run_with(&body, "", 128, &[0; 128], seed).unwrap(), wanted);
    }
}

#[test]
fn products_of_tensor_cores() {
    // A of ones by B of twos, 16 deep.
    let body = "mov.b32 %r2, 0x3c003c00;\nmov.b32 %r3, 0x40004000;\nmov.f32 %f1, 0f3F800000;\n\
                mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5}, {%r2, %r2, %r2, %r2}, {%r3, %r3}, \
                {%f1, %f1, %f1, %f1};\n"
        .to_owned()
        + MINE
        + "add.f32 %f6, %f2, %f5;\nst.global.f32 [%rd3], %f6;";
    assert_eq!(run(&body, 32, &[0; 32]).unwrap(), [66.0_f32.to_bits(); 32]);
}

/// A product of four warps by `name`: A is of the halves of `ones`, B of 16 words `first + step * w` of each column, in the swizzle
/// of 128 bytes. Lane 4r + c has `places[c]`. Each thread returns its sums of two rows, eight apart.
fn sparse_product(name: &str, more: &str, [ones, step, first]: [u32; 3], places: [u32; 4]) -> Vec<[u32; 2]> {
    let fill: String = (0..16).map(|i| format!("st.shared.u32 [%r4+{}], {ones};\n", i * 512)).collect();
    let body = format!(
        ".shared .align 1024 .b8 s[9216];\nmov.u32 %r2, s;\nshl.b32 %r3, %r1, 2;\nadd.s32 %r4, %r2, %r3;\n{fill}\
         shr.u32 %r5, %r1, 4;\nand.b32 %r6, %r1, 15;\nshr.u32 %r7, %r6, 2;\nxor.b32 %r7, %r7, %r5;\nshl.b32 %r7, %r7, 4;\n\
         shl.b32 %r8, %r5, 7;\nand.b32 %r9, %r3, 12;\nadd.s32 %r7, %r7, %r8;\nadd.s32 %r7, %r7, %r9;\nadd.s32 %r7, %r7, %r2;\n\
         mad.lo.s32 %r8, %r6, {step}, {first};\nst.shared.u32 [%r7+8192], %r8;\nbar.sync 0;\nand.b32 %r9, %r1, 3;\n\
         mul.wide.u32 %rd2, %r9, 4;\nadd.s64 %rd3, %rd1, %rd2;\nld.global.u32 %r10, [%rd3];\nshr.u32 %r11, %r2, 4;\n\
         cvt.u64.u32 %rd4, %r11;\nor.b64 %rd4, %rd4, 4611686293305360384;\nadd.s64 %rd5, %rd4, 512;\n\
         setp.lt.u32 %p1, %r1, 0;\n{name} {{%r12, %r13, %r14, %r15}}, %rd4, %rd5, %r10, {more};\n\
         mul.wide.u32 %rd2, %r1, 8;\nadd.s64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3+16], %r12;\n\
         st.global.u32 [%rd3+20], %r14;"
    );
    let mut words = places.to_vec();
    words.resize(4 + 256, 0);
    let found = run(&body, 128, &words).unwrap();
    found[4..].chunks_exact(2).map(|two| [two[0], two[1]]).collect()
}

#[test]
fn products_of_four_warps_by_sparse_matrices() {
    // B is k at depth k. Elements 0 and 1, 2 and 3, 0 and 2, 1 and 3 of a group of four add up to 1, 5, 2 and 4 and 8 for each group
    // in front.
    let [first, last, even, odd] = [0x4444_4444, 0xeeee_eeee, 0x8888_8888, 0xdddd_dddd_u32];
    // Lanes 0 and 2 of four have groups 0 to 7 and 8 to 15 of a row, 1 and 3 those of the row eight below.
    let name = "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8";
    let found =
        sparse_product(name, "0, %p1", [0x0101_0101, 0x0404_0404, 0x0302_0100], [first, last, even, odd]);
    let row = (8 * 28 + 8) + (8 * 92 + 8 * 2);
    let below = (8 * 28 + 8 * 5) + (8 * 92 + 8 * 4);
    assert_eq!(found, vec![[row, below]; 128]);
    // Of 16 bits, lanes 2 and 3 have groups 0 to 3 and 4 to 7 of both rows. Numbers are multiples of the least.
    let both = |row: u32, below: u32| row & 0xffff | below & 0xffff_0000;
    let name = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16";
    let places = [first, first, both(even, odd), both(first, last)];
    let found = sparse_product(name, "1, %p1, 1, 1, 0, 0", [0x3c00_3c00, 0x0002_0002, 0x0001_0000], places);
    let sum = |n: f32| (n / 16_777_216.0).to_bits();
    let row = (8 * 6 + 4 * 2) + (8 * 22 + 4);
    let below = (8 * 6 + 4 * 4) + (8 * 22 + 4 * 5);
    assert_eq!(found, vec![[sum(row as f32), sum(below as f32)]; 128]);
}

#[test]
fn wrong_accesses_and_endless_waits_are_refused() {
    let refused = |body: &str, threads, says: &str| {
        let e = run(body, threads, &[0; 8]).unwrap_err();
        assert!(e.contains(says), "{e}");
    };
    refused("st.global.u32 [%rd1+32], %r1;", 1, "4 bytes at");
    refused("ld.global.u32 %r2, [%rd1+-4];", 1, "are no live memory, in `ld.global.u32 %r2, [%rd1+-4]`");
    refused("st.global.u64 [%rd1+4], %rd1;", 1, "is no multiple of 8");
    refused(".shared .align 4 .b8 s[4];\nst.shared.u32 [s+16], %r1;", 1, "outside of the");
    refused("mov.u32 %r2, 0;\nld.shared.u32 %r3, [%r2];", 1, "outside of the");
    refused("setp.eq.s32 %p1, %r1, 0;\n@%p1 bar.sync 0, 64;", 32, "all threads wait");
    refused(
        "setp.eq.s32 %p1, %r1, 0;\n@!%p1 bra far;\nbar.warp.sync -1;\nbra near;\nfar:\nbar.sync 0;\nnear:",
        32,
        "all threads wait",
    );
    refused("trap;", 1, "a trap");
    let e = run("frobnicate.f32 %f1, %f2;", 1, &[0; 8]).unwrap_err();
    assert!(e.contains("frobnicate"), "{e}");
    let e = run_with("", ".maxntid 32, 1, 1", 64, &[0; 8], 1).unwrap_err();
    assert!(e.contains("too many"), "{e}");
}
