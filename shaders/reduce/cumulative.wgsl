// Running sums and products along an axis: a thread a line.

struct LineParams {
    count: u32,
    inner: u32,
}

fn line_params() -> LineParams {
    return LineParams(
        word(0u),
        word(1u),
    );
}

// Elements lo() .. hi() of each line; the sum so far is kept from launch to launch.
@compute @workgroup_size(64)
fn cumulative(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = line_params();
    let base = t / p.inner * p.count * p.inner + t % p.inner;
    var sum = resume(t, START);
    for (var i = lo(); i < hi(); i++) {
        let at = base + select(i, p.count - 1u - i, REVERSE) * p.inner;
        let next = step(sum, x0(at));
        emit0(at, select(next, sum, EXCLUSIVE));
        sum = next;
    }
    if (hi() < p.count) {
        keep(t, sum);
    }
}

// Stand-ins for what a generated module defines.

alias Value = f32;
const START: Value = 0.0;
const REVERSE: bool = false;
const EXCLUSIVE: bool = false;

fn step(sum: Value, x: Value) -> Value {
    return sum + x;
}

fn x0(at: u32) -> Value {
    return START;
}

fn emit0(at: u32, v: Value) {
}

fn resume(at: u32, start: Value) -> Value {
    return start;
}

fn keep(at: u32, v: Value) {
}

fn word(k: u32) -> u32 {
    return k;
}

fn grid() -> u32 {
    return 1u;
}

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}

fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x;
}
