// The position of the greatest or least element along an axis: a workgroup a line. Each thread finds that of its elements, then
// pairs of threads compare theirs.

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

var<workgroup> best_values: array<Element, 256>;
var<workgroup> best_places: array<u32, 256>;

// Keeps the better one of the elements of two threads for the first of them. A thread without one has a place behind the line.
fn compare(lane: u32, other: u32, count: u32) {
    let a = best_places[lane];
    let b = best_places[other];
    if (b >= count) {
        return;
    }
    var taken = false;
    if (a < b) {
        taken = replaces(best_values[lane], best_values[other]);
    } else {
        taken = !replaces(best_values[other], best_values[lane]);
    }
    if (taken) {
        best_values[lane] = best_values[other];
        best_places[lane] = b;
    }
}

@compute @workgroup_size(256)
fn argreduce_group(
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
    var best = lane;
    if (lane < p.count) {
        var value = x0(base + lane * p.inner);
        for (var i = lane + 256u; i < p.count; i += 256u) {
            let x = x0(base + i * p.inner);
            if (replaces(value, x)) {
                value = x;
                best = i;
            }
        }
        best_values[lane] = value;
    }
    best_places[lane] = best;
    workgroupBarrier();
    for (var s = 128u; s > 0u; s = s / 2u) {
        if (lane < s) {
            compare(lane, lane + s, p.count);
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        emit0(line, i64(best_places[0]));
    }
}

// Stand-ins for what a generated module defines.

alias Element = f32;

fn replaces(best: f32, x: f32) -> bool {
    return x > best;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn emit0(at: u32, v: i64) {
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
