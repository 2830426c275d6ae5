//! A build takes at most three times the memory of the model's weights: once for the copy of the model file, once for
//! derived weights, and once for all the rest. The plan file is read back in pieces. Measured in a process of its own, from
//! reading the model to the plan file.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use kiln_backend_cpu::Cpu;
use kiln_builder::BuildConfig;
use kiln_plan::Plan;
use kiln_tests::backends::cpu;
use kiln_tests::topologies::Topology;
use std::process::Command;

/// Names the network that the child builds.
const NETWORK: &str = "KILN_BUILD_MEMORY_OF";

/// The most memory that this process ever had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn check(network: &str) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "builds_in_a_child", "--ignored", "--nocapture"])
        .env(NETWORK, network)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{text}\n{}", String::from_utf8_lossy(&child.stderr));
    let number = |name: &str| -> u64 {
        let found = text.lines().find_map(|l| l.split_once(name)).unwrap().1;
        found.trim().parse().unwrap()
    };
    let (weights, peak) = (number("weights:"), number("peak:"));
    let ratio = peak as f64 / weights as f64;
    println!("{network}: {} MiB of weights, peak {} MiB, {ratio:.2}", weights >> 20, peak >> 20);
    assert!(ratio <= 3.0, "building {network} takes {ratio:.2} times the weights");
}

#[test]
fn resnet50_whose_convolutions_are_all_derived() {
    check("resnet50");
}

#[test]
fn vgg19_which_has_a_weight_of_411_megabytes() {
    check("vgg19");
}

#[test]
#[ignore = "what the other tests run in a process of its own"]
fn builds_in_a_child() {
    let topology = Topology::open(&std::env::var(NETWORK).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (_, built) = topology.build(&cpu(), BuildConfig::default()).unwrap();
    Plan::new(built.program, Vec::new(), Cpu::target()).write_file(&folder.path().join("plan")).unwrap();
    println!("\nweights:{}\npeak:{}", std::fs::metadata(&topology.path).unwrap().len(), peak());
}
