//! Compiles kernels on all cores, and lists what they take.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(dead_code, reason = "every test uses a part")]

use kiln_backend::{Region, Tactic, Target};
use kiln_backend_cuda::compile::{Resources, cubin, explain, resources};
use kiln_backend_cuda::{target, written};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Results of `work` on each element, in their order, on all cores.
pub fn parallel<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found = std::thread::scope(|s| {
        let one = || {
            let mut found = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                let Some(t) = all.get(i) else { return found };
                found.push((i, work(t)));
            }
        };
        let running: Vec<_> = (0..threads).map(|_| s.spawn(one)).collect();
        running.into_iter().flat_map(|t| t.join().unwrap()).collect::<Vec<_>>()
    });
    found.sort_by_key(|(i, _)| *i);
    found.into_iter().map(|(_, r)| r).collect()
}

/// One of `KILN_KERNEL_PART` sources, which `KILN_KERNEL_SEED` draws; by default, and where `KILN_KERNELS` picks some, all.
fn drawn(sources: &[(String, String)]) -> Vec<&(String, String)> {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<usize>().ok());
    let picked = std::env::var_os("KILN_KERNELS").is_some();
    let parts = number("KILN_KERNEL_PART").filter(|_| !picked).unwrap_or(1).max(1);
    let first = number("KILN_KERNEL_SEED").unwrap_or(0) % parts;
    // The last parts of short lists would be empty.
    sources.iter().skip(first.min(sources.len().saturating_sub(1))).step_by(parts).collect()
}

/// Compiles sources, given with what they are for, or the part of them that is drawn; writes what they take to target/kernels/LIST-ARCH.tsv, and returns those
/// that are refused, or that `complain` has something against.
pub fn compile(
    sources: &[(String, String)],
    arch: &str,
    list: &str,
    complain: impl Fn(&Resources) -> Option<String> + Sync,
) -> Vec<String> {
    let start = Instant::now();
    let drawn = drawn(sources);
    let done = parallel(&drawn, |(text, what)| match explain(text, arch) {
        // The compiler's remarks on wgmma that it could not keep in flight.
        Ok(c) if c.log.contains("C75") => (Vec::new(), Some(format!("{what} for {arch}: {}", c.log))),
        Ok(c) => {
            let takes = resources(&c.log);
            let bad =
                takes.iter().find_map(|r| Some(format!("{what} for {arch}: {}: {}", r.entry, complain(r)?)));
            let none =
                takes.is_empty().then(|| format!("{what} for {arch}: the compiler tells of no entry point"));
            (takes, bad.or(none))
        }
        Err(e) => {
            let log = e.to_string();
            let lines: Vec<&str> = log.lines().filter(|l| l.contains("error")).take(3).collect();
            (Vec::new(), Some(format!("{what} for {arch}: {}", lines.join("\n"))))
        }
    });
    let mut table = String::from("kernel\tentry\tregisters\tshared bytes\tspilled bytes\tstack bytes\n");
    for ((_, what), (takes, _)) in drawn.iter().zip(&done) {
        for r in takes {
            let _ = writeln!(
                table,
                "{what}\t{}\t{}\t{}\t{}\t{}",
                r.entry, r.registers, r.shared, r.spilled, r.stack
            );
        }
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/kernels");
    // A host that only runs the tests has no such folder, and needs no table.
    if std::fs::create_dir_all(folder).is_ok() {
        let _ = std::fs::write(format!("{folder}/{list}-{arch}.tsv"), table);
    }
    println!("{} of {} kernels for {arch} in {:.1?}", drawn.len(), sources.len(), start.elapsed());
    done.into_iter().filter_map(|(_, failed)| failed).collect()
}

/// Sources, each once, with what they are for.
pub type Sources = BTreeMap<String, String>;

/// One of `share` sources; `KILN_KERNELS=all` takes all, another text those whose name has it.
pub fn some(sources: Sources, share: usize) -> Vec<(String, String)> {
    match std::env::var("KILN_KERNELS") {
        Ok(part) => sources.into_iter().filter(|(_, what)| part == "all" || what.contains(&part)).collect(),
        Err(_) => sources.into_iter().step_by(share).collect(),
    }
}

/// Compiles one of `share` sources for sm_90a and sm_80; none may store more than so many bytes outside of registers.
pub fn compile_without_spills(list: &str, share: usize, most: u32, sources: impl Fn(&Target) -> Sources) {
    let spills = |r: &Resources| (r.spilled > most).then(|| format!("{} bytes are spilled", r.spilled));
    for name in ["h200", "a100"] {
        let target = target::known(name).unwrap();
        let some = some(sources(&target), share);
        let failed = compile(&some, &target.arch, list, spills);
        assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), some.len(), failed.join("\n"));
    }
}

/// Sources of regions by their tactics, each once.
pub fn written_for(target: &Target, all: impl IntoIterator<Item = (String, Region, Vec<Tactic>)>) -> Sources {
    let mut found = Sources::new();
    for (label, region, tactics) in all {
        for t in tactics {
            let (text, _) = written(&region, &t, target).unwrap();
            found.entry(text).or_insert_with(|| format!("{label} by {}", t.id()));
        }
    }
    found
}

/// Compiles all sources at once, so that tests find them in the cache.
pub fn compile_ahead(sources: Sources, target: &Target) {
    let all: Vec<String> = sources.into_keys().collect();
    let done = parallel(&all, |text| cubin(text, &target.arch).err().map(|e| e.to_string()));
    let refused: Vec<String> = done.into_iter().flatten().collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// Cases that are run, each with its tactics: one tactic of `KILN_SAMPLE` of all cases together, by default all, as tools that
/// watch every access of a kernel are slow. `KILN_TACTICS` is a part of the names of those that are run. Their kernels are compiled ahead,
/// on all cores.
pub fn sampled<C>(
    cases: Vec<C>,
    target: &Target,
    region: impl Fn(&C) -> Region,
    tactics: impl Fn(&C) -> Vec<Tactic>,
) -> Vec<(C, Vec<Tactic>)> {
    let every = std::env::var("KILN_SAMPLE").ok().and_then(|n| n.parse().ok()).unwrap_or(1).max(1);
    let named = std::env::var("KILN_TACTICS").unwrap_or_default();
    let mut at = 0_usize;
    let mut takes = |t: &Tactic| {
        at += usize::from(t.name.contains(&named));
        t.name.contains(&named) && at.is_multiple_of(every)
    };
    let taken = cases.into_iter().map(|c| {
        let tactics: Vec<Tactic> = tactics(&c).into_iter().filter(&mut takes).collect();
        (c, tactics)
    });
    let taken: Vec<_> = taken.filter(|(_, tactics)| !tactics.is_empty()).collect();
    assert!(!taken.is_empty(), "nothing is left to run");
    let sources = taken.iter().map(|(c, tactics)| (String::new(), region(c), tactics.clone()));
    compile_ahead(written_for(target, sources), target);
    taken
}
