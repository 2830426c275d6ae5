//! Times runs of an engine from Rust, as `benches/bindings/overhead.py` does from other languages: `runs PLAN RUNS` prints the
//! median of a run from inputs to outputs, and of a run whose inputs stay, in nanoseconds.

#![allow(clippy::print_stdout, reason = "a bench")]

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

fn median(runs: usize, mut run: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<u128, Box<dyn Error>> {
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_nanos());
    }
    times.sort_unstable();
    times.get(runs / 2).copied().ok_or_else(|| "no runs".into())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, plan, runs] = &words[..] else { return Err("usage: runs PLAN RUNS".into()) };
    let runs = runs.parse()?;
    let engine = kiln::Engine::open(plan.as_str())?;
    let mut context = engine.create_context()?;
    let input = engine.io_tensors().first().ok_or("the engine has no inputs")?.clone();
    let shape = input.ty().static_dims().ok_or("the input has no fixed shape")?;
    let image = kiln::Tensor::from_slice(&shape, &vec![0f32; shape.iter().product()])?;
    let name = input.name.as_str();
    let whole = median(runs, || {
        black_box(context.run(&[(name, image.clone())])?);
        Ok(())
    })?;
    context.set_input(name, image.clone())?;
    let kept = median(runs, || {
        context.enqueue()?;
        context.wait()?;
        Ok(())
    })?;
    println!("{{\"run\": {whole}, \"kept\": {kept}}}");
    Ok(())
}
