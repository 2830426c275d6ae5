//! Files, names and folders that mean harm, and models of exporters with mutations: each run ends with a result or an error, in bounded time and memory.
//!
//! `KILN_HOSTILE=10000` sets how many mutations there are, `KILN_HOSTILE_SEED` the first of them, `KILN_HOSTILE_KEEP` a folder
//! for models at fault.

mod access;
mod names;

use crate::common::{Folder, command, data, number};
use kiln_ir::problem::Rng;
use kiln_tests::mutants::models;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of one run in seconds, from the start of the process to its end. Its inference, which a mutated
/// condition of a loop can make endless, is stopped after 2 s.
const SECONDS: u64 = 20;
const BYTES: u64 = 2 << 30;

/// Models larger than this are left to the long runs.
const SMALL: u64 = 64 << 10;

fn files(all: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["exports", "control_flow", "digits", "nlp"] {
        let entries = std::fs::read_dir(data(folder)).unwrap();
        found.extend(entries.map(|e| e.unwrap().path()).filter(|p| {
            let small = std::fs::metadata(p).is_ok_and(|m| m.len() <= if all { 1 << 20 } else { SMALL });
            small && p.extension().is_some_and(|e| e == "onnx")
        }));
    }
    found.sort();
    assert!(found.len() >= 10, "{found:?}");
    found
}

/// Numbers that programs stumble over.
const NUMBERS: [u64; 12] =
    [0, 1, 2, 127, 255, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 40, i64::MAX as u64, 1 << 63, u64::MAX];

/// A changed copy: half of them remain well-formed models.
fn mutate(model: &[u8], rng: &mut Rng) -> Vec<u8> {
    let changed = if rng.int(0, 1) == 0 { models::mutate(model, rng) } else { None };
    changed.unwrap_or_else(|| damage(model, rng))
}

/// A damaged copy: bytes flipped, parts removed, repeated or moved, numbers of the encoding replaced by others of the same
/// length.
fn damage(model: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = model.to_vec();
    for _ in 0..rng.int(1, 6) {
        // Structure comes first in small models, weights last: half of the places are near the beginning.
        let reach = if rng.int(0, 1) == 0 { bytes.len().min(4096) } else { bytes.len() };
        let at = rng.int(0, reach as i64 - 1) as usize;
        let end = (at + rng.int(1, 40) as usize).min(bytes.len());
        match rng.int(0, 6) {
            0 => bytes[at] ^= 1 << rng.int(0, 7),
            1 => bytes[at] = rng.int(0, 255) as u8,
            2 => drop(bytes.drain(at..end)),
            3 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            4 => {
                let from = rng.int(0, bytes.len() as i64 - 1) as usize;
                let n = (end - at).min(bytes.len() - from);
                let part = bytes[from..from + n].to_vec();
                bytes[at..at + n.min(end - at)].copy_from_slice(&part[..n.min(end - at)]);
            }
            5 => {
                // A number of the wire format that starts here, to the same number of bytes.
                let length = bytes[at..].iter().take(10).take_while(|b| **b >= 128).count() + 1;
                let mut n = NUMBERS[rng.int(0, 11) as usize];
                let last = (at + length).min(bytes.len());
                for (i, b) in bytes[at..last].iter_mut().enumerate() {
                    *b = (n & 127) as u8 | if i + 1 < length { 128 } else { 0 };
                    n >>= 7;
                }
            }
            _ => {
                let n = NUMBERS[rng.int(0, 11) as usize].to_le_bytes();
                let last = (at + 8).min(bytes.len());
                bytes[at..last].copy_from_slice(&n[..last - at]);
            }
        }
        if bytes.is_empty() {
            return model.to_vec();
        }
    }
    bytes
}

/// Runs the command on a model; what went wrong beyond an error of its own.
fn offence(path: &str) -> Option<String> {
    let mut child = Command::new(command())
        .args(["run", path, "--backend", "cpu", "--no-timing", "--random-inputs", "1"])
        .args(["--memory-limit", "1G", "--timeout", "2"])
        .env_remove("KILN_PLUGIN_PATH")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (start, mut peak) = (Instant::now(), 0);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        peak = peak.max(resident(child.id()));
        if start.elapsed() > Duration::from_secs(SECONDS) || peak > BYTES {
            child.kill().unwrap();
            child.wait().unwrap();
            return Some(format!("{:?} and {peak} bytes", start.elapsed()));
        }
        std::thread::sleep(Duration::from_millis(3));
    };
    if matches!(status.code(), Some(0 | 1)) {
        return None;
    }
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut text).unwrap_or_default();
    Some(format!("{:?}, signal {:?}: {text}", status.code(), status.signal()))
}

/// The most memory that a process has had so far.
fn resident(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[test]
fn mutated_models_end_with_a_result_or_an_error() {
    let asked = number("KILN_HOSTILE");
    let (count, first) = (asked.unwrap_or(80), number("KILN_HOSTILE_SEED").unwrap_or(1));
    let (models, folder) = (files(asked.is_some()), Folder::new());
    let (mut offences, mut slowest) = (Vec::new(), Duration::ZERO);
    for seed in first..first + count {
        let mut rng = Rng::new(seed);
        let model = &models[seed as usize % models.len()];
        let path = folder.name("m.onnx");
        std::fs::write(&path, mutate(&std::fs::read(model).unwrap(), &mut rng)).unwrap();
        let start = Instant::now();
        let found = offence(&path);
        slowest = slowest.max(start.elapsed());
        if let Some(what) = found {
            let name = model.file_name().unwrap_or_default().to_string_lossy().into_owned();
            println!("seed {seed} ({name}): {what}");
            if let Ok(kept) = std::env::var("KILN_HOSTILE_KEEP") {
                std::fs::copy(&path, Path::new(&kept).join(format!("{seed}-{name}"))).unwrap();
            }
            offences.push(seed);
        }
    }
    println!("{count} mutations, the slowest took {slowest:.1?}");
    assert!(offences.is_empty(), "KILN_HOSTILE_SEED of {} of {count}: {offences:?}", offences.len());
}
