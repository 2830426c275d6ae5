// Rows of a result, each with a reduction of its elements as an element of output 1. Hooks: `side_element(at)` computes element `at`
// of output 0, stores it, and returns it as it is stored; `side_empty`, `side_step`, `side_merge`, `side_last`, `side_infinite` and
// SIDE_SHIFTED are those of `reduce.wgsl`; a row has `side_count()` elements and `side_width()` threads, a power of two.

var<workgroup> side_sums: array<SideSum, 128>;

var<workgroup> side_tops: array<f32, 128>;

// The sum of a row, of what its threads have found.
fn side_sum(lane: u32, width: u32, mine: SideSum) -> SideSum {
    side_sums[lane] = mine;
    workgroupBarrier();
    for (var s = 64u; s > 0u; s = s / 2u) {
        if (s < width && lane % width < s) {
            side_sums[lane] = side_merge(side_sums[lane], side_sums[lane + s]);
        }
        workgroupBarrier();
    }
    return side_sums[lane - lane % width];
}

// The greatest element of a row.
fn side_top(lane: u32, width: u32, mine: f32) -> f32 {
    side_tops[lane] = mine;
    workgroupBarrier();
    for (var s = 64u; s > 0u; s = s / 2u) {
        if (s < width && lane % width < s) {
            side_tops[lane] = kmax(side_tops[lane], side_tops[lane + s]);
        }
        workgroupBarrier();
    }
    return side_tops[lane - lane % width];
}

// What a thread finds in elements from `begin` to `end`.
fn side_part(begin: u32, end: u32, width: u32) -> SideSum {
    var acc = side_empty();
    for (var at = begin; at < end; at += width) {
        acc = side_step(acc, SideSum(side_element(at)), 0.0);
    }
    return acc;
}

// The same, once all are stored.
fn side_part_of_stored(begin: u32, end: u32, width: u32, top: f32) -> SideSum {
    var acc = side_empty();
    for (var at = begin; at < end; at += width) {
        acc = side_step(acc, SideSum(ry0(at)), top);
    }
    return acc;
}

fn side_part_top(begin: u32, end: u32, width: u32) -> f32 {
    var top = cf(0xff800000u);
    for (var at = begin; at < end; at += width) {
        top = kmax(top, f32(side_element(at)));
    }
    return top;
}

// A workgroup of rows.
@compute @workgroup_size(128)
fn side_rows(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = block_of(id, blocks);
    if (block >= grid()) {
        return;
    }
    let width = side_width();
    let count = side_count();
    let row = block * (128u / width) + lane / width;
    let begin = row * count + lane % width;
    let end = select(0u, row * count + count, row < side_row_count());
    var top = 0.0;
    var acc = side_empty();
    if (SIDE_SHIFTED) {
        top = side_top(lane, width, side_part_top(begin, end, width));
        acc = side_part_of_stored(begin, end, width, top);
    } else {
        acc = side_part(begin, end, width);
    }
    acc = side_sum(lane, width, acc);
    if (lane % width != 0u || row >= side_row_count()) {
        return;
    }
    if (SIDE_SHIFTED && (is_nan(top) || is_inf(top))) {
        emit1(row, side_infinite(top));
    } else {
        emit1(row, side_last(acc, count, top));
    }
}

// Stand-ins for what a generated module defines.

alias SideSum = f32;

const SIDE_SHIFTED: bool = true;

fn side_element(at: u32) -> f32 {
    return 0.0;
}

fn ry0(at: u32) -> f32 {
    return 0.0;
}

fn emit1(at: u32, v: f32) {
}

fn side_empty() -> SideSum {
    return SideSum();
}

fn side_step(acc: SideSum, v: SideSum, top: f32) -> SideSum {
    return acc + v;
}

fn side_merge(acc: SideSum, v: SideSum) -> SideSum {
    return acc + v;
}

fn side_last(acc: SideSum, n: u32, top: f32) -> f32 {
    return acc;
}

fn side_infinite(top: f32) -> f32 {
    return top;
}

fn side_count() -> u32 {
    return 1u;
}

fn side_row_count() -> u32 {
    return 1u;
}

fn side_width() -> u32 {
    return 1u;
}

fn grid() -> u32 {
    return 1u;
}

fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x;
}

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
