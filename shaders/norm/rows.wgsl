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

// A thread's result over elements begin .. end of a row.
fn lane_first(row: u32, begin: u32, end: u32, lane: u32) -> f32 {
    let base = row_start(row);
    var a = neutral();
    for (var i = begin + lane; i < end; i += 64u) {
        a = merge(a, first(element(base, i), row));
    }
    return a;
}

fn lane_second(row: u32, begin: u32, end: u32, lane: u32, a: f32) -> f32 {
    let base = row_start(row);
    var b = 0.0;
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
