// Reductions over any axes. Hooks: `empty()` is the sum of nothing, `step(sum, element, top)` adds an element, `merge(sum, other)`
// adds another sum, `last(sum, n, top)` is the result. With SHIFTED, `top` is the greatest element of a result, found before the
// sums and kept behind them.

struct ReduceParams {
    elements: u32,
    dims: List,
    strides: List,
    kept_dims: List,
    kept_strides: List,
    tops: u32,
}

fn reduce_params() -> ReduceParams {
    return ReduceParams(
        word(0u),
        List(word(1u), word(2u)),
        List(word(3u), word(4u)),
        List(word(5u), word(6u)),
        List(word(7u), word(8u)),
        word(9u),
    );
}

fn shift(at: u32) -> f32 {
    if (SHIFTED) {
        return bitcast<f32>(scratch[reduce_params().tops + at]);
    }
    return 0.0;
}

// The sum of elements lo() .. hi() and those of the launches before.
fn reduce_part(at: u32) -> Sum {
    let p = reduce_params();
    let base = strided(p.kept_dims, p.kept_strides, at);
    let top = shift(at);
    var acc = resume(at, empty());
    for (var i = lo(); i < hi(); i++) {
        acc = step(acc, Sum(x0(base + strided(p.dims, p.strides, i))), top);
    }
    return acc;
}

// One thread a result.
fn reduce(at: u32) -> Value {
    let top = shift(at);
    if (SHIFTED) {
        if (is_nan(top) || is_inf(top)) {
            return infinite(top);
        }
    }
    return last(reduce_part(at), reduce_params().elements, top);
}

// Finds the greatest element of a result.
@compute @workgroup_size(64)
fn greatest(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = reduce_params();
    let base = strided(p.kept_dims, p.kept_strides, t);
    var top = cf(0xff800000u);
    if (lo() > 0u) {
        top = shift(t);
    }
    for (var i = lo(); i < hi(); i++) {
        top = kmax(top, f32(x0(base + strided(p.dims, p.strides, i))));
    }
    scratch[p.tops + t] = bitcast<u32>(top);
}

var<workgroup> partial: array<Sum, 64>;

fn tree(lane: u32, mine: Sum) -> Sum {
    partial[lane] = mine;
    workgroupBarrier();
    for (var s = 32u; s > 0u; s = s / 2u) {
        if (lane < s) {
            partial[lane] = merge(partial[lane], partial[lane + s]);
        }
        workgroupBarrier();
    }
    return partial[0];
}

// A thread's result over elements begin .. end of a result.
fn lane_sum(at: u32, begin: u32, end: u32, lane: u32) -> Sum {
    let p = reduce_params();
    let base = strided(p.kept_dims, p.kept_strides, at);
    var acc = empty();
    if (p.dims.count == 1u) {
        // Elements at equal steps, in fours.
        let by = item(p.strides, 0u);
        let fours = begin + (end - begin) / 4u * 4u;
        for (var i = begin + lane * 4u; i < fours; i += 256u) {
            let x = fx0(base + i * by, by);
            acc = step(acc, Sum(x.x), 0.0);
            acc = step(acc, Sum(x.y), 0.0);
            acc = step(acc, Sum(x.z), 0.0);
            acc = step(acc, Sum(x.w), 0.0);
        }
        if (fours + lane < end) {
            acc = step(acc, Sum(x0(base + (fours + lane) * by)), 0.0);
        }
        return acc;
    }
    for (var i = begin + lane; i < end; i += 64u) {
        acc = step(acc, Sum(x0(base + strided(p.dims, p.strides, i))), 0.0);
    }
    return acc;
}

// One workgroup a result.
@compute @workgroup_size(64)
fn reduce_group(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let at = block_of(id, blocks);
    if (at >= grid()) {
        return;
    }
    let n = reduce_params().elements;
    let acc = tree(lane, lane_sum(at, 0u, n, lane));
    if (lane == 0u) {
        emit0(at, last(acc, n, 0.0));
    }
}

// One of hi() parts of a result, of lo() elements.
@compute @workgroup_size(64)
fn reduce_group_part(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let part = block_of(id, blocks);
    if (part >= grid()) {
        return;
    }
    let begin = part % hi() * lo();
    let end = min(begin + lo(), reduce_params().elements);
    let acc = tree(lane, lane_sum(part / hi(), begin, end, lane));
    if (lane == 0u) {
        keep(part, acc);
    }
}

// All parts of a result.
@compute @workgroup_size(64)
fn reduce_group_join(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let at = block_of(id, blocks);
    if (at >= grid()) {
        return;
    }
    var acc = empty();
    for (var k = lane; k < hi(); k += 64u) {
        acc = merge(acc, kept(at * hi() + k));
    }
    acc = tree(lane, acc);
    if (lane == 0u) {
        emit0(at, last(acc, reduce_params().elements, 0.0));
    }
}

// Stand-ins for what a generated module defines.

fn word(k: u32) -> u32 {
    return k;
}

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}

fn grid() -> u32 {
    return 1u;
}

fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x;
}

struct List {
    first: u32,
    count: u32,
}

fn strided(dims: List, strides: List, at: u32) -> u32 {
    return at;
}

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;

fn cf(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

fn kmax(a: f32, b: f32) -> f32 {
    return max(a, b);
}

fn is_nan(x: f32) -> bool {
    return x != x;
}

fn is_inf(x: f32) -> bool {
    return abs(x) > 3.4e38;
}

alias Value = f32;
alias Sum = f32;
const SHIFTED: bool = true;

fn x0(at: u32) -> Value {
    return Value();
}

fn emit0(at: u32, v: Value) {
}

fn resume(at: u32, start: Sum) -> Sum {
    return start;
}

fn keep(at: u32, v: Sum) {
}

fn kept(at: u32) -> Sum {
    return Sum();
}

fn empty() -> Sum {
    return Sum();
}

fn step(acc: Sum, v: Sum, top: f32) -> Sum {
    return acc + v;
}

fn merge(acc: Sum, v: Sum) -> Sum {
    return acc + v;
}

fn last(acc: Sum, n: u32, top: f32) -> Value {
    return acc;
}

fn infinite(top: f32) -> Value {
    return top;
}

fn fx0(at: u32, step: u32) -> vec4<f32> {
    return vec4<f32>();
}

fn item(list: List, i: u32) -> u32 {
    return list.first + i;
}
