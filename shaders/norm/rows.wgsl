// Two numbers of a row, then a result for each of its elements: softmax and norms. The first number merges what `first` returns
// for each element, the second one adds up what `second` returns. Where rows are long or few, they are cut into hi() parts of lo()
// elements. Scratch: the two numbers of each row, then what each part finds. Results are a map, as its threads have words of their
// own where elements share them.

var<workgroup> shared_values: array<f32, 64>;

fn tree_first(lane: u32, v: f32) -> f32 {
    shared_values[lane] = v;
    workgroupBarrier();
    for (var s = 32u; s > 0u; s = s / 2u) {
        if (lane < s) {
            shared_values[lane] = merge(shared_values[lane], shared_values[lane + s]);
        }
        workgroupBarrier();
    }
    let r = shared_values[0];
    workgroupBarrier();
    return r;
}

fn tree_second(lane: u32, v: f32) -> f32 {
    shared_values[lane] = v;
    workgroupBarrier();
    for (var s = 32u; s > 0u; s = s / 2u) {
        if (lane < s) {
            shared_values[lane] = shared_values[lane] + shared_values[lane + s];
        }
        workgroupBarrier();
    }
    let r = shared_values[0];
    workgroupBarrier();
    return r;
}

// Whether the elements of a row are neighbours from the start of a word on, and in fours: they are loaded and stored so.
fn by_fours() -> bool {
    return BY_FOURS && are_neighbours() && row_length() % 4u == 0u;
}

// A thread's result over elements begin .. end of a row.
fn lane_first(row: u32, begin: u32, end: u32, lane: u32) -> f32 {
    let base = row_start(row);
    var a = neutral();
    if (by_fours()) {
        for (var i = begin + lane * 4u; i < end; i += 256u) {
            let x = fx0(base + i, 1u);
            a = merge(a, merge(merge(first_of(x.x), first_of(x.y)), merge(first_of(x.z), first_of(x.w))));
        }
        return a;
    }
    for (var i = begin + lane; i < end; i += 64u) {
        a = merge(a, first(element(base, i), row));
    }
    return a;
}

fn lane_second(row: u32, begin: u32, end: u32, lane: u32, a: f32) -> f32 {
    let base = row_start(row);
    var b = 0.0;
    if (by_fours()) {
        for (var i = begin + lane * 4u; i < end; i += 256u) {
            let x = fx0(base + i, 1u);
            b += (second_of(x.x, a) + second_of(x.y, a)) + (second_of(x.z, a) + second_of(x.w, a));
        }
        return b;
    }
    for (var i = begin + lane; i < end; i += 64u) {
        b += second(element(base, i), row, a);
    }
    return b;
}

// One workgroup a row: its numbers.
@compute @workgroup_size(64)
fn numbers(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = block_of(id, blocks);
    if (row >= grid()) {
        return;
    }
    let n = row_length();
    let a = number(tree_first(lane, lane_first(row, 0u, n, lane)));
    let b = tree_second(lane, lane_second(row, 0u, n, lane, a));
    if (lane == 0u) {
        scratch[row * 2u] = bitcast<u32>(a);
        scratch[row * 2u + 1u] = bitcast<u32>(b);
        statistics(row, a, b);
    }
}

// One workgroup a row in fours: its numbers, and its results.
@compute @workgroup_size(64)
fn whole_rows(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = block_of(id, blocks);
    if (row >= grid()) {
        return;
    }
    let n = row_length();
    let a = number(tree_first(lane, lane_first(row, 0u, n, lane)));
    let b = tree_second(lane, lane_second(row, 0u, n, lane, a));
    if (lane == 0u) {
        statistics(row, a, b);
    }
    for (var i = lane * 4u; i < n; i += 256u) {
        let at = row * n + i;
        emit_four0(at, results_of(at, fx0(at, 1u), a, b));
    }
}

// Place in scratch memory of the result of a part of a row.
fn of_part(row: u32, part: u32, rows: u32) -> u32 {
    return rows * 2u + row * hi() + part;
}

@compute @workgroup_size(64)
fn part_first(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let part = block_of(id, blocks);
    if (part >= grid()) {
        return;
    }
    let row = part / hi();
    let begin = part % hi() * lo();
    let a = tree_first(lane, lane_first(row, begin, min(begin + lo(), row_length()), lane));
    if (lane == 0u) {
        scratch[of_part(row, part % hi(), grid() / hi())] = bitcast<u32>(a);
    }
}

@compute @workgroup_size(64)
fn part_second(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let part = block_of(id, blocks);
    if (part >= grid()) {
        return;
    }
    let row = part / hi();
    let begin = part % hi() * lo();
    let a = bitcast<f32>(scratch[row * 2u]);
    let b = tree_second(lane, lane_second(row, begin, min(begin + lo(), row_length()), lane, a));
    if (lane == 0u) {
        scratch[of_part(row, part % hi(), grid() / hi())] = bitcast<u32>(b);
    }
}

@compute @workgroup_size(64)
fn join_first(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = block_of(id, blocks);
    if (row >= grid()) {
        return;
    }
    var a = neutral();
    for (var k = lane; k < hi(); k += 64u) {
        a = merge(a, bitcast<f32>(scratch[of_part(row, k, grid())]));
    }
    a = number(tree_first(lane, a));
    if (lane == 0u) {
        scratch[row * 2u] = bitcast<u32>(a);
    }
}

@compute @workgroup_size(64)
fn join_second(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = block_of(id, blocks);
    if (row >= grid()) {
        return;
    }
    var b = 0.0;
    for (var k = lane; k < hi(); k += 64u) {
        b += bitcast<f32>(scratch[of_part(row, k, grid())]);
    }
    b = tree_second(lane, b);
    if (lane == 0u) {
        scratch[row * 2u + 1u] = bitcast<u32>(b);
        statistics(row, bitcast<f32>(scratch[row * 2u]), b);
    }
}

// An element of the result.
fn apply(at: u32) -> f32 {
    let row = row_at(at);
    let a = bitcast<f32>(scratch[row * 2u]);
    return result(at, row, a, bitcast<f32>(scratch[row * 2u + 1u]));
}

// Four neighbours of the result.
fn apply_four(at: u32) -> vec4<f32> {
    if (by_fours()) {
        let row = row_at(at);
        let a = bitcast<f32>(scratch[row * 2u]);
        return results_of(at, fx0(at, 1u), a, bitcast<f32>(scratch[row * 2u + 1u]));
    }
    return vec4<f32>(apply(at), apply(at + 1u), apply(at + 2u), apply(at + 3u));
}

// Stand-ins for what a generated module defines.

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

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;

// Elements of a row.
fn row_length() -> u32 {
    return 1u;
}

// The first element of a row.
fn row_start(row: u32) -> u32 {
    return row;
}

// Element i of the row that starts at `base`.
fn element(base: u32, i: u32) -> u32 {
    return base + i;
}

// The row of an element.
fn row_at(at: u32) -> u32 {
    return at;
}

fn merge(a: f32, b: f32) -> f32 {
    return a + b;
}

// The neutral element: merged with any number it gives that number.
fn neutral() -> f32 {
    return 0.0;
}

fn first(at: u32, row: u32) -> f32 {
    return 0.0;
}

fn second(at: u32, row: u32, a: f32) -> f32 {
    return 0.0;
}

// The first number, from what is merged.
fn number(merged: f32) -> f32 {
    return merged;
}

fn result(at: u32, row: u32, a: f32, b: f32) -> f32 {
    return a;
}

// Stores what is stored for each row.
fn statistics(row: u32, a: f32, b: f32) {
}

const BY_FOURS: bool = false;

// Do the elements of a row lie next to each other, and rows as well?
fn are_neighbours() -> bool {
    return false;
}

// `first`, `second` and `result` by the values of elements.
fn first_of(x: f32) -> f32 {
    return x;
}

fn second_of(x: f32, a: f32) -> f32 {
    return x;
}

fn results_of(at: u32, x: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return x;
}

fn fx0(at: u32, step: u32) -> vec4<f32> {
    return vec4<f32>();
}

fn emit_four0(at: u32, v: vec4<f32>) {
}
