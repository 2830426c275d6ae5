// Products of few rows by weights that stay codes: SHARERS threads read the codes of four outputs, a word of each at a time. A
// launch sums over lo() .. hi() of the words.

struct CodesParams {
    rows: u32,
    columns: u32,
    depth: u32,
    length: u32,
    scales: u32,
}

fn codes_params() -> CodesParams {
    return CodesParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
    );
}

// Sums of one output for up to four rows.
var<workgroup> parts: array<vec4<f32>, 64>;

// Elements `at` of up to four rows.
fn codes_rows(p: CodesParams, row: u32, at: u32) -> vec4<f32> {
    var x = vec4<f32>(x0(row * p.depth + at), 0.0, 0.0, 0.0);
    if (ROWS > 1u) {
        x.y = x0(min(row + 1u, p.rows - 1u) * p.depth + at);
        x.z = x0(min(row + 2u, p.rows - 1u) * p.depth + at);
        x.w = x0(min(row + 3u, p.rows - 1u) * p.depth + at);
    }
    return x;
}

// The products of a word of an output's codes and the rows.
fn codes_word(p: CodesParams, row: u32, column: u32, w: u32) -> vec4<f32> {
    let output = min(column, p.columns - 1u);
    let codes = w1(output * p.length + w);
    let part = output / ACROSS * p.scales + w * CODES / ALONG;
    let zero = zero_at(part);
    var run = vec4<f32>(0.0);
    for (var q = 0u; q < CODES; q++) {
        run += f32(code_of(codes, q) - zero) * codes_rows(p, row, w * CODES + q);
    }
    return run * x2(part);
}

// An output's sums before this launch.
fn codes_first(p: CodesParams, row: u32, column: u32, part: u32) -> vec4<f32> {
    var sums = vec4<f32>(0.0);
    if (lo() > 0u && part == 0u && column < p.columns) {
        for (var r = 0u; r < ROWS; r++) {
            if (row + r < p.rows) {
                sums[r] = resume((row + r) * p.columns + column, 0.0);
            }
        }
    }
    return sums;
}

fn codes_last(p: CodesParams, row: u32, column: u32, sums: vec4<f32>) {
    for (var r = 0u; r < ROWS; r++) {
        if (row + r < p.rows && column < p.columns) {
            let at = (row + r) * p.columns + column;
            if (hi() < p.length) {
                keep(at, sums[r]);
            } else {
                emit0(at, sums[r]);
            }
        }
    }
}

// The sums of all threads that share an output, by the first of them.
fn codes_together(lane: u32, sums: vec4<f32>) -> vec4<f32> {
    if (SHARERS == 1u) {
        return sums;
    }
    workgroupBarrier();
    parts[lane] = sums;
    for (var step = SHARERS / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane % SHARERS < step) {
            parts[lane] += parts[lane + step];
        }
    }
    workgroupBarrier();
    return parts[lane];
}

@compute @workgroup_size(64)
fn codes_few(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = block_of(id, blocks);
    if (block >= grid()) {
        return;
    }
    let p = codes_params();
    let wide = 64u / SHARERS * 4u;
    let across = (p.columns + wide - 1u) / wide;
    let column = block % across * wide + lane / SHARERS * 4u;
    let row = block / across * ROWS;
    let part = lane % SHARERS;
    var a = codes_first(p, row, column, part);
    var b = codes_first(p, row, column + 1u, part);
    var c = codes_first(p, row, column + 2u, part);
    var d = codes_first(p, row, column + 3u, part);
    for (var w = lo() + part; w < hi(); w += SHARERS) {
        a += codes_word(p, row, column, w);
        b += codes_word(p, row, column + 1u, w);
        c += codes_word(p, row, column + 2u, w);
        d += codes_word(p, row, column + 3u, w);
    }
    a = codes_together(lane, a);
    b = codes_together(lane, b);
    c = codes_together(lane, c);
    d = codes_together(lane, d);
    if (part == 0u) {
        codes_last(p, row, column, a);
        codes_last(p, row, column + 1u, b);
        codes_last(p, row, column + 2u, c);
        codes_last(p, row, column + 3u, d);
    }
}

// Stand-ins for what a generated module defines.

const ROWS: u32 = 4u;

const SHARERS: u32 = 64u;

const CODES: u32 = 8u;

const ALONG: u32 = 8u;

const ACROSS: u32 = 1u;

fn zero_at(at: u32) -> i32 {
    return 0;
}

fn code_of(w: u32, lane: u32) -> i32 {
    return 0;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn x2(at: u32) -> f32 {
    return 0.0;
}

fn w1(at: u32) -> u32 {
    return 0u;
}

fn keep(at: u32, v: f32) {
}

fn resume(at: u32, start: f32) -> f32 {
    return start;
}

fn emit0(at: u32, v: f32) {
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

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}
