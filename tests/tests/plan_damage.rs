//! Damaged, foreign and absurd plan files are refused by a typed error, quickly and without taking memory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend_cpu::Cpu;
use kiln_builder::{BuildConfig, Builder};
use kiln_onnx::parse_file;
use kiln_plan::{Plan, PlanError};
use kiln_runtime::Profile;
use kiln_tests::backends::cpu;
use kiln_tests::models::data;
use kiln_tests::mutants::repair;

/// An engine file of half a megabyte, with the network kept.
fn file() -> Vec<u8> {
    let network = parse_file(data("digits/lenet_a_bn.onnx"), &Default::default()).unwrap().network;
    let mut profile = Profile::new();
    profile.set_shape("input", &[1, 1, 28, 28], &[1, 1, 28, 28], &[2, 1, 28, 28]).unwrap();
    let mut b = Builder::new(cpu(), Cpu::target());
    b.config = BuildConfig { profiles: vec![profile.clone()], max_tactics: 1, ..Default::default() };
    let program = b.build(&network).unwrap().program;
    let plan = Plan::new(program, vec![profile], Cpu::target());
    plan.with_network(network.lower().unwrap()).write().unwrap()
}

/// Offsets of sections and their lengths, from the table.
fn sections(file: &[u8]) -> Vec<(usize, usize)> {
    let number = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let count = u32::from_le_bytes(file[12..16].try_into().unwrap()) as usize;
    (0..count).map(|i| (number(128 + 64 * i + 8), number(128 + 64 * i + 16))).collect()
}

/// A thousand positions: in the head and the table, in every section, and evenly over the whole.
fn positions(file: &[u8]) -> Vec<usize> {
    let sections = sections(file);
    let table_end = 128 + 64 * sections.len();
    let mut all: Vec<usize> = (0..table_end).step_by(4).collect();
    for (start, len) in sections {
        all.extend((0..40).map(|i| start + (len - 1) * i / 39));
    }
    let rest = 1000 - all.len();
    all.extend((0..rest).map(|i| (file.len() - 1) * i / (rest - 1)));
    all
}

#[test]
fn a_thousand_flipped_bytes_give_a_thousand_typed_errors() {
    let mut bytes = file();
    Plan::read(bytes.clone()).unwrap();
    let positions = positions(&bytes);
    assert_eq!(positions.len(), 1000);
    for (i, at) in positions.into_iter().enumerate() {
        let flip = 1 << (i % 8);
        bytes[at] ^= flip;
        let found = Plan::read(bytes.clone());
        assert!(found.is_err(), "bit {} of byte {at} of {} goes unnoticed", i % 8, bytes.len());
        bytes[at] ^= flip;
    }
    Plan::read(bytes).unwrap();
}

#[test]
fn truncated_files_are_refused() {
    let bytes = file();
    let ends = (0..1024).chain((0..500).map(|i| bytes.len() * i / 500)).chain([bytes.len() - 1]);
    for n in ends {
        let e = Plan::read(bytes[..n].to_vec()).unwrap_err();
        assert!(matches!(e, PlanError::Truncated { .. } | PlanError::Magic { .. }), "{n} bytes: {e}");
    }
}

#[test]
fn foreign_files_are_refused() {
    for name in ["digits/lenet_a.onnx", "digits/digits_test.npz", "README.md"] {
        let e = Plan::open(&data(name)).unwrap_err();
        assert!(matches!(e, PlanError::Magic { .. }), "{name}: {e}");
    }
    assert!(matches!(Plan::open(&data("none")), Err(PlanError::Io { .. })));
    assert!(Plan::open(&data("digits")).is_err());
}

/// The peak of this process's memory in bytes, where the system reports it.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

#[test]
fn absurd_counts_with_right_hashes_are_refused_in_little_memory() {
    let good = file();
    let sections = sections(&good);
    let before = peak();
    let mut refused = 0;
    for &(start, len) in &sections {
        // Every place where a section's count, offset or length may begin, and CBOR heads that promise 2^63 items.
        for at in (start..start + len.min(256)).step_by(3) {
            for absurd in [
                [0xff; 9],
                [0x9b, 0x7f, 255, 255, 255, 255, 255, 255, 255],
                [0x5a, 0x7f, 255, 255, 255, 0, 0, 0, 0],
            ] {
                let mut b = good.clone();
                let end = (at + 9).min(b.len());
                b[at..end].copy_from_slice(&absurd[..end - at]);
                repair(&mut b);
                refused += usize::from(Plan::read(b).is_err());
            }
        }
    }
    assert!(refused > 500, "{refused}: the damage reaches the readers");
    if let (Some(before), Some(after)) = (before, peak()) {
        assert!(after - before < 256 << 20, "{} bytes more", after - before);
    }
}
