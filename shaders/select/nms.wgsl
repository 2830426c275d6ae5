// Non-maximum suppression: candidates of each class are sorted (`sort/bitonic`), then a block a class picks boxes. Scratch memory
// has the sorted lists, first of the candidates of each class of each batch entry, later of the picks of each batch entry; then
// the picks of each class, then how many there are of each, then where those of each start.

struct SortedNmsParams {
    count: u32,
    width: u32,
    batch: u32,
    classes: u32,
    boxes: u32,
    most: u32,
    lists: u32,
    by_score: u32,
    overlap: f32,
    score: f32,
}

fn sorted_nms_params() -> SortedNmsParams {
    return SortedNmsParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
        word(6u),
        word(7u),
        bitcast<f32>(word(8u)),
        bitcast<f32>(word(9u)),
    );
}

fn sorted_count() -> u32 {
    return sorted_nms_params().count;
}

fn sorted_width() -> u32 {
    return sorted_nms_params().width;
}

struct Rect {
    low: vec2<f32>,
    high: vec2<f32>,
}

// Box i of a class.
fn box(row: u32, i: u32) -> Rect {
    let p = sorted_nms_params();
    let entry = row / p.classes * p.boxes + i;
    let at = select(entry, entry * p.classes + row % p.classes, BOXES_OF_CLASSES) * 4u;
    let a = vec2<f32>(x0(at), x0(at + 1u));
    let b = vec2<f32>(x0(at + 2u), x0(at + 3u));
    if (CENTER_BOX) {
        return Rect(a - b / 2.0, a + b / 2.0);
    }
    return Rect(min(a.yx, b.yx), max(a.yx, b.yx));
}

// Whether the intersection over union exceeds the limit.
fn overlap(r: Rect, s: Rect) -> bool {
    let size = min(r.high, s.high) - max(r.low, s.low);
    let a = (r.high.x - r.low.x) * (r.high.y - r.low.y);
    let b = (s.high.x - s.low.x) * (s.high.y - s.low.y);
    if (!(size.x > 0.0 && size.y > 0.0 && a > 0.0 && b > 0.0)) {
        return false;
    }
    let both = size.x * size.y;
    return both / (a + b - both) > sorted_nms_params().overlap;
}

fn candidate(row: u32, i: u32) -> bool {
    let p = sorted_nms_params();
    let s = x1(row * p.boxes + i);
    return !is_nan(s) && (!LEAST_SCORE || flt(p.score, s));
}

// The class of pick k of a batch entry, where each class has as many as it can have at most.
fn class_of(entry: u32, k: u32) -> u32 {
    let p = sorted_nms_params();
    return entry * p.classes + k / p.most;
}

fn pick_of(entry: u32, k: u32) -> u32 {
    return scratch[picks_at(class_of(entry, k)) + k % sorted_nms_params().most];
}

fn is_pick(entry: u32, k: u32) -> bool {
    return k % sorted_nms_params().most < scratch[counts_of(class_of(entry, k))];
}

fn pick_before(entry: u32, a: u32, b: u32) -> bool {
    let is_a = is_pick(entry, a);
    let is_b = is_pick(entry, b);
    if (!is_a || !is_b) {
        return is_a && !is_b;
    }
    let boxes = sorted_nms_params().boxes;
    let first = x1(class_of(entry, a) * boxes + pick_of(entry, a));
    return flt(x1(class_of(entry, b) * boxes + pick_of(entry, b)), first);
}

// Greater scores first, what is no candidate last.
fn before(row: u32, a: u32, b: u32) -> bool {
    let p = sorted_nms_params();
    if (p.by_score != 0u) {
        return pick_before(row, a, b);
    }
    let is_a = candidate(row, a);
    let is_b = candidate(row, b);
    if (!is_a || !is_b) {
        return is_a && !is_b;
    }
    return flt(x1(row * p.boxes + b), x1(row * p.boxes + a));
}

fn picks_at(row: u32) -> u32 {
    let p = sorted_nms_params();
    return p.lists + row * p.most;
}

fn counts_of(row: u32) -> u32 {
    let p = sorted_nms_params();
    return p.lists + p.batch * p.classes * p.most + row;
}

fn start_of(row: u32) -> u32 {
    let p = sorted_nms_params();
    return p.lists + p.batch * p.classes * (p.most + 1u) + row;
}

var<workgroup> open: u32;
var<workgroup> covered: atomic<u32>;

// Looks at candidates lo() .. hi() of each class.
@compute @workgroup_size(64)
fn pick_boxes(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = block_of(id, blocks);
    if (row >= grid()) {
        return;
    }
    let p = sorted_nms_params();
    var picked = 0u;
    if (lo() > 0u) {
        picked = scratch[counts_of(row)];
    }
    for (var k = lo(); k < hi(); k++) {
        let best = scratch[row * p.width + k];
        if (lane == 0u) {
            open = select(0u, 1u, picked < p.most && best < p.boxes && candidate(row, min(best, p.boxes - 1u)));
            atomicStore(&covered, 0u);
        }
        if (workgroupUniformLoad(&open) == 0u) {
            break;
        }
        let r = box(row, best);
        for (var j = lane; j < picked; j += 64u) {
            if (overlap(box(row, scratch[picks_at(row) + j]), r)) {
                atomicStore(&covered, 1u);
            }
        }
        workgroupBarrier();
        let free = atomicLoad(&covered) == 0u;
        if (free && lane == 0u) {
            scratch[picks_at(row) + picked] = best;
        }
        picked += select(0u, 1u, free);
        storageBarrier();
        workgroupBarrier();
    }
    if (lane == 0u) {
        scratch[counts_of(row)] = picked;
    }
}

// Adds up the counts of classes lo() .. hi(), in one thread.
@compute @workgroup_size(64)
fn count_picks(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    var total = 0u;
    if (lo() > 0u) {
        total = scratch[start_of(lo() - 1u)] + scratch[counts_of(lo() - 1u)];
    }
    for (var k = lo(); k < hi(); k++) {
        scratch[start_of(k)] = total;
        total += scratch[counts_of(k)];
    }
    sizes[0] = total;
}

// Batch entry, class and box of each pick.
fn nms(at: u32) -> i64 {
    let p = sorted_nms_params();
    let row = at / 3u;
    // The last class that starts at this row or before.
    var low = 0u;
    var high = p.batch * p.classes;
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (scratch[start_of(middle)] <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    let entry = low / p.classes;
    var k = low % p.classes * p.most + row - scratch[start_of(low)];
    if (p.by_score != 0u) {
        k = scratch[entry * p.width + row - scratch[start_of(entry * p.classes)]];
    }
    switch (at % 3u) {
        case 0u: {
            return i64(i32(entry));
        }
        case 1u: {
            return i64(i32(k / p.most));
        }
        default: {
            return i64(i32(pick_of(entry, k)));
        }
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

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;

@group(0) @binding(2) var<storage, read_write> sizes: array<u32>;

fn is_nan(x: f32) -> bool {
    return x != x;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn x1(at: u32) -> f32 {
    return 0.0;
}

const CENTER_BOX: bool = false;
const BOXES_OF_CLASSES: bool = false;
const LEAST_SCORE: bool = false;

fn flt(a: f32, b: f32) -> bool {
    return a < b;
}
