// Neighbours of a result that lie in input 0 from `start` on, `step` apart: `left` of them. The next ones begin again `outer` further
// than the first one of the `inner` that began `skip` elements before; so it goes on for `both` elements.
struct Run {
    start: u32,
    step: u32,
    left: u32,
    skip: u32,
    inner: u32,
    outer: u32,
    both: u32,
}

// The place of element j of a run.
fn run_place(run: Run, j: u32) -> u32 {
    let k = run.skip + j;
    return run.start - run.skip * run.step + k / run.inner * run.outer + k % run.inner * run.step;
}
