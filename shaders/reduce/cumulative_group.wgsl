// Running sums and products along an axis: a workgroup a line, 256 elements at a time.

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

var<workgroup> sums: array<Value, 256>;

// Makes `sums` the sums of all elements up to each.
fn sum_up(lane: u32) {
    for (var apart = 1u; apart < 256u; apart = apart * 2u) {
        var sum = sums[lane];
        if (lane >= apart) {
            sum = step(sums[lane - apart], sum);
        }
        workgroupBarrier();
        sums[lane] = sum;
        workgroupBarrier();
    }
}

@compute @workgroup_size(256)
fn cumulative_group(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let line = block_of(id, blocks);
    if (line >= grid()) {
        return;
    }
    let p = line_params();
    let base = line / p.inner * p.count * p.inner + line % p.inner;
    // The sum of what is in front.
    var sum = START;
    for (var begin = 0u; begin < p.count; begin += 256u) {
        let i = begin + lane;
        let at = base + select(i, p.count - 1u - i, REVERSE) * p.inner;
        var x = START;
        if (i < p.count) {
            x = x0(at);
        }
        sums[lane] = x;
        workgroupBarrier();
        sum_up(lane);
        var before = sum;
        if (lane > 0u) {
            before = step(sum, sums[lane - 1u]);
        }
        if (i < p.count) {
            emit0(at, select(step(sum, sums[lane]), before, EXCLUSIVE));
        }
        sum = step(sum, sums[255]);
        workgroupBarrier();
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

fn word(k: u32) -> u32 {
    return k;
}

fn grid() -> u32 {
    return 1u;
}

fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x;
}
