//! Builds an engine twice. The second build takes the times that the first one measured, as bytes, and measures nothing.
//!
//! `cargo run -p kiln --example timing_cache -- [MODEL]`

#![allow(clippy::print_stdout, reason = "an example prints")]

use kiln::cache::TimingCache;
use kiln::{Engine, EngineBuilder};
use std::error::Error;

/// The number of kernels that each build timed, and whether their plans have equal bytes.
pub fn twice(model: &str, builder: &EngineBuilder) -> Result<([usize; 2], bool), Box<dyn Error>> {
    // No bytes are an empty cache.
    let empty = TimingCache::from_bytes(&[])?;
    let first = builder.clone().times(empty).build_plan(model)?;
    let bytes = first.times.to_bytes();
    println!("{} times in {} bytes", first.times.len(), bytes.len());

    // Another process reads them from a file, say.
    let times = TimingCache::from_bytes(&bytes)?;
    let second = builder.clone().times(times).build_plan(model)?;
    let same = first.plan.write()? == second.plan.write()?;
    Ok(([first.report.timed, second.report.timed], same))
}

fn main() -> Result<(), Box<dyn Error>> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
    let model = std::env::args().nth(1).unwrap_or_else(|| own.to_owned());
    let ([first, second], same) = twice(&model, &Engine::builder())?;
    println!("timed {first} kernels, then {second}; the same plan: {same}");
    Ok(())
}
