//! Limits of memory pools: candidates that do not fit are left out, and pools that leave none are named.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, BackendError, Device, Region, Tactic, Target};
use kiln_builder::{BuildConfig, BuildError, Builder, Built, MemoryPool};
use kiln_ir::{ErrorCode, Graph};
use kiln_plan::DeviceLimit;
use kiln_tests::backends::{cpu, cuda, wgpu};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The CPU backend, whose tactics claim scratch memory, and whose devices claim memory that threads share.
struct Claims(Arc<dyn Backend>, u64);

impl Backend for Claims {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        let mut all = self.0.targets()?;
        for t in &mut all {
            t.numbers.insert("shared_memory".into(), 100 << 10);
            t.numbers.insert("sm_count".into(), 64);
            t.memory.total = 1 << 30;
        }
        Ok(all)
    }

    /// A tactic more than the backend has, which wants scratch memory; the shared memory of the target is its parameter.
    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        let mut all = self.0.tactics(region, target)?;
        let shared = target.numbers.get("shared_memory").copied().unwrap_or(0);
        for t in &mut all {
            t.workspace = self.1;
            t.note = format!("shared {shared}");
            if target.numbers.get("sm_count").is_some_and(|&n| n < 64) {
                t.note = format!(
                    "of {} multiprocessors and {} bytes",
                    target.numbers["sm_count"], target.memory.total
                );
            }
        }
        Ok(all)
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        self.0.compile(region, tactic, target)
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        assert_eq!(target.numbers["shared_memory"], 100 << 10, "devices are opened as they are");
        let own = self.0.targets()?.into_iter().next();
        self.0.open(&own.unwrap())
    }
}

const NET: &str = "graph \"net\" { input %x: f32[4,8] input %w: f32[8,16] %y = matmul(%x, %w) %z = softmax(%y) {axis=1} output %z }";

fn build(backend: Arc<dyn Backend>, pools: &[(MemoryPool, u64)]) -> Result<Built, BuildError> {
    let target = backend.targets().unwrap().remove(0);
    let mut b = Builder::new(backend, target);
    b.config = BuildConfig { pools: pools.iter().copied().collect(), samples: 1, ..BuildConfig::default() };
    b.build_graph(Graph::from_text(NET).unwrap(), &mut |_, _, _| true)
}

fn claims(bytes: u64) -> Arc<dyn Backend> {
    Arc::new(Claims(cpu(), bytes))
}

/// The error names the pool, the layer and the bytes.
fn exhausted(e: BuildError, pool: &str, layer: &str, limit: u64, least: u64) {
    assert!(matches!(e, BuildError::NoTactic { .. }), "{e}");
    assert_eq!(e.code(), ErrorCode::UnsupportedState);
    let text = e.to_string();
    for part in [
        format!("the pool \"{pool}\" is exhausted: it has {limit} bytes"),
        format!("wants {least}"),
        format!("layer \"{layer}"),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
}

#[test]
fn scratch_memory_is_limited() {
    let fits = build(claims(4096), &[(MemoryPool::Workspace, 4096)]).unwrap();
    assert!(fits.steps.iter().all(|s| s.workspace == 4096));
    exhausted(
        build(claims(4096), &[(MemoryPool::Workspace, 4095)]).unwrap_err(),
        "workspace",
        "y",
        4095,
        4096,
    );
}

#[test]
fn memory_that_a_kernel_touches_is_limited() {
    // The product reads 4×8 and 8×16 elements and writes 4×16, beside 100 bytes of scratch.
    let bytes = 4 * (32 + 128 + 64) + 100;
    build(claims(100), &[(MemoryPool::TacticDram, bytes)]).unwrap();
    let refused = build(claims(100), &[(MemoryPool::TacticDram, bytes - 1)]).unwrap_err();
    exhausted(refused, "tactic-dram", "y", bytes - 1, bytes);
}

#[test]
fn shared_memory_is_that_of_a_smaller_device() {
    let shared = |pools: &[(MemoryPool, u64)]| build(claims(0), pools).unwrap().steps[0].note.clone();
    assert_eq!(shared(&[]), format!("shared {}", 100 << 10));
    assert_eq!(shared(&[(MemoryPool::TacticSharedMemory, 64 << 10)]), format!("shared {}", 64 << 10));
    let none = build(cpu(), &[(MemoryPool::TacticSharedMemory, 64 << 10)]).unwrap();
    assert!(
        none.notes.iter().any(|n| n.contains("has no pool \"tactic-shared-memory\"")),
        "{:?}",
        none.notes
    );
}

#[test]
fn limits_beyond_what_is_there_are_refused() {
    for (pool, limit, code) in [
        (MemoryPool::TacticSharedMemory, (48 << 10) - 1, ErrorCode::InvalidArgument),
        (MemoryPool::TacticSharedMemory, (100 << 10) + 1, ErrorCode::UnsupportedState),
        (MemoryPool::Workspace, (1 << 30) + 1, ErrorCode::UnsupportedState),
        (MemoryPool::TacticDram, u64::MAX, ErrorCode::UnsupportedState),
    ] {
        let e = build(claims(0), &[(pool, limit)]).unwrap_err();
        assert!(matches!(&e, BuildError::Pool { pool: p, .. } if *p == pool), "{e}");
        assert_eq!(e.code(), code, "{e}");
        assert!(e.to_string().contains(&format!("\"{pool}\" cannot have {limit} bytes")), "{e}");
    }
}

#[test]
fn times_under_other_limits_are_other_times() {
    let keys = |pools: &[(MemoryPool, u64)]| -> BTreeSet<String> {
        build(claims(64), pools).unwrap().times.iter().map(|(k, _)| k.to_owned()).collect()
    };
    let (free, limited) = (keys(&[]), keys(&[(MemoryPool::Workspace, 1 << 20)]));
    assert!(free.is_disjoint(&limited));
}

fn limited(backend: Arc<dyn Backend>, sms: Option<u64>, memory: Option<u64>) -> Result<Built, BuildError> {
    let target = backend.targets().unwrap().remove(0);
    let mut b = Builder::new(backend, target);
    b.config = BuildConfig { limit: DeviceLimit { sms, memory }, samples: 1, ..BuildConfig::default() };
    b.build_graph(Graph::from_text(NET).unwrap(), &mut |_, _, _| true)
}

/// Kernels are chosen for the smaller device, by the backend's model: times would be those of the whole device.
#[test]
fn plans_for_a_part_of_a_device_are_made_for_it() {
    let built = limited(claims(0), Some(16), Some(1 << 20)).unwrap();
    assert_eq!(built.steps[0].note, format!("of 16 multiprocessors and {} bytes", 1 << 20));
    let modelled = |b: &Built| b.notes.iter().any(|n| n.contains("model for 16 multiprocessors"));
    assert!(built.timed == 0 && modelled(&built), "{:?}", built.notes);
    assert!(!modelled(&limited(claims(0), None, Some(1 << 20)).unwrap()), "memory alone changes no times");
    let none = limited(cpu(), Some(2), None).unwrap();
    assert!(none.notes.iter().any(|n| n.contains("counts no multiprocessors")), "{:?}", none.notes);
}

#[test]
fn plans_that_need_more_than_the_limit_are_refused() {
    for (sms, memory, code, says) in [
        (Some(0), None, ErrorCode::InvalidArgument, "sms=0"),
        (Some(65), None, ErrorCode::UnsupportedState, "has 64"),
        (None, Some(2 << 30), ErrorCode::UnsupportedState, "has 1073741824"),
        (None, Some(255), ErrorCode::FailedAllocation, "activations of a context 512"),
    ] {
        let e = limited(claims(0), sms, memory).unwrap_err();
        assert!(matches!(e, BuildError::Limit { .. }) && e.code() == code, "{e}");
        assert!(e.to_string().contains(says), "{e}");
    }
}

/// A convolution that is built with a limit takes a tactic within it.
fn on_gpu(backend: Arc<dyn Backend>) {
    let conv =
        "graph \"c\" { input %x: f32[1,16,20,20] input %w: f32[24,16,3,3] %y = conv(%x, %w) output %y }";
    let build = |limit: Option<u64>| {
        let target = backend.targets().unwrap().remove(0);
        let mut b = Builder::new(backend.clone(), target);
        let pools = limit.map(|l| (MemoryPool::Workspace, l)).into_iter().collect();
        b.config = BuildConfig { pools, estimates: true, ..BuildConfig::default() };
        b.build_graph(Graph::from_text(conv).unwrap(), &mut |_, _, _| true)
    };
    let free = build(None).unwrap();
    let most = free.steps.iter().map(|s| s.workspace).max().unwrap();
    let limited = build(Some(most.saturating_sub(1)));
    match limited {
        Ok(b) => assert!(b.steps.iter().all(|s| s.workspace <= most.saturating_sub(1))),
        Err(e) => assert!(most > 0 && e.to_string().contains("the pool \"workspace\" is exhausted"), "{e}"),
    }
}

#[test]
fn limits_hold_on_wgpu() {
    if let Some(b) = wgpu().unwrap() {
        // All that the device has is no limit, however little that is.
        let shared = b.targets().unwrap()[0].numbers["shared_memory"];
        build(b.clone(), &[(MemoryPool::TacticSharedMemory, shared)]).unwrap();
        on_gpu(b);
    }
}

#[test]
fn limits_hold_on_cuda() {
    if let Some(b) = cuda().unwrap() {
        on_gpu(b);
    }
}
