// Reductions whose results are neighbours as their elements are: 8 threads of a workgroup sum four results each, 32 fours beside each
// other. A launch sums hi() parts of lo() elements each; where there are several, a second one joins what they have found. Hooks are
// those of `reduce/reduce.wgsl`.

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

struct FourSums {
    a: Sum,
    b: Sum,
    c: Sum,
    d: Sum,
}

// Sums of a thread: elements begin .. end of four results.
fn column_sums(p: ReduceParams, at: u32, begin: u32, end: u32, share: u32) -> FourSums {
    var r = FourSums(empty(), empty(), empty(), empty());
    let base = strided(p.kept_dims, p.kept_strides, at);
    for (var i = begin + share; i < end; i += 8u) {
        let x = fx0(base + strided(p.dims, p.strides, i), 1u);
        r.a = step(r.a, Sum(x.x), 0.0);
        r.b = step(r.b, Sum(x.y), 0.0);
        r.c = step(r.c, Sum(x.z), 0.0);
        r.d = step(r.d, Sum(x.w), 0.0);
    }
    return r;
}

var<workgroup> found: array<FourSums, 256>;

@compute @workgroup_size(256)
fn reduce_columns(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = block_of(id, blocks);
    if (block >= grid()) {
        return;
    }
    let p = reduce_params();
    let at = block / hi() * 128u + lane % 32u * 4u;
    let begin = block % hi() * lo();
    let valid = at < p.tops;
    if (valid) {
        found[lane] = column_sums(p, at, begin, min(begin + lo(), p.elements), lane / 32u);
    }
    workgroupBarrier();
    for (var half = 4u; half > 0u; half = half / 2u) {
        if (valid && lane / 32u < half) {
            let own = found[lane];
            let other = found[lane + half * 32u];
            found[lane] =
                FourSums(merge(own.a, other.a), merge(own.b, other.b), merge(own.c, other.c), merge(own.d, other.d));
        }
        workgroupBarrier();
    }
    if (!valid || lane >= 32u) {
        return;
    }
    let sums = found[lane];
    if (hi() > 1u) {
        let part = block % hi();
        keep(at * hi() + part, sums.a);
        keep((at + 1u) * hi() + part, sums.b);
        keep((at + 2u) * hi() + part, sums.c);
        keep((at + 3u) * hi() + part, sums.d);
        return;
    }
    let n = p.elements;
    emit_four0(at, vec4<Value>(last(sums.a, n, 0.0), last(sums.b, n, 0.0), last(sums.c, n, 0.0), last(sums.d, n, 0.0)));
}

// A thread a result: the sum of its parts.
@compute @workgroup_size(64)
fn join_columns(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    var acc = empty();
    for (var k = 0u; k < hi(); k++) {
        acc = merge(acc, kept(t * hi() + k));
    }
    emit0(t, last(acc, reduce_params().elements, 0.0));
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

alias Value = f32;
alias Sum = f32;

fn fx0(at: u32, step: u32) -> vec4<Value> {
    return vec4<Value>();
}

fn emit0(at: u32, v: Value) {
}

fn emit_four0(at: u32, v: vec4<Value>) {
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
