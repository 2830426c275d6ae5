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

// A thread's result over elements from `begin` to `end`.
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

// Tiles of SIDE_ROWS x SIDE_COLUMNS results: each thread reduces those that it stores, SIDE_CHUNK neighbours of a row, and passes
// what it finds to `side_put`.

const SIDE_STEP: u32 = SIDE_COLUMNS / SIDE_CHUNK + 1u;

var<workgroup> side_found: array<SideSum, SIDE_ROWS * SIDE_STEP>;

fn side_put(row: u32, column: u32, part: SideSum) {
    side_found[row * SIDE_STEP + column / SIDE_CHUNK] = part;
}

// Where in scratch memory a tile keeps what it has found of a row. Sums of a product that takes several launches come first.
fn side_place(part: u32, row: u32) -> u32 {
    let rows = side_row_count();
    return select(0u, side_count() * rows * 2u, lo() > 0u) + part * rows + row;
}

// Finishes the rows of a tile, so many from `first` on, or keeps what this tile has found of them.
fn side_tile(lane: u32, threads: u32, first: u32, rows: u32, column: u32) {
    workgroupBarrier();
    let n = side_count();
    let chunks = (min(n - column, SIDE_COLUMNS) + SIDE_CHUNK - 1u) / SIDE_CHUNK;
    for (var r = lane; r < rows; r += threads) {
        var acc = side_found[r * SIDE_STEP];
        for (var c = 1u; c < chunks; c++) {
            acc = side_merge(acc, side_found[r * SIDE_STEP + c]);
        }
        if (n <= SIDE_COLUMNS) {
            emit1(first + r, side_last(acc, n, 0.0));
        } else {
            scratch[side_place(column / SIDE_COLUMNS, first + r)] = bitcast<u32>(acc);
        }
    }
}

// Joins what the tiles of a row reduced.
@compute @workgroup_size(64)
fn side_join(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = block_of(id, blocks) * 64u + lane;
    if (row >= grid()) {
        return;
    }
    let n = side_count();
    var acc = side_empty();
    for (var part = 0u; part * SIDE_COLUMNS < n; part++) {
        acc = side_merge(acc, bitcast<SideSum>(scratch[side_place(part, row)]));
    }
    emit1(row, side_last(acc, n, 0.0));
}

// Stand-ins for what a generated module defines.

const SIDE_ROWS: u32 = 64u;

const SIDE_COLUMNS: u32 = 64u;

const SIDE_CHUNK: u32 = 4u;

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;

fn lo() -> u32 {
    return 0u;
}

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
