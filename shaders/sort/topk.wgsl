// The first elements of each line along an axis in the order `precedes`, equal ones by position.

struct SortedTopkParams {
    count: u32,
    width: u32,
    inner: u32,
    kept: u32,
    words: u32,
    first: u32,
}

fn sorted_topk_params() -> SortedTopkParams {
    return SortedTopkParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
    );
}

// Finds the rank of an element in its line.
@compute @workgroup_size(64)
fn rank(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = sorted_topk_params();
    let i = (t / p.inner) % p.count;
    let outer = t / p.inner / p.count;
    let base = outer * p.count * p.inner + t % p.inner;
    let v = x0(t);
    var place = 0u;
    for (var j = 0u; j < p.count; j++) {
        let u = x0(base + j * p.inner);
        if (precedes(u, v) || (j < i && !precedes(v, u))) {
            place++;
        }
    }
    if (place < p.kept) {
        let to = (outer * p.kept + place) * p.inner + t % p.inner;
        emit0(to, v);
        emit1(to, i64(i32(i)));
    }
}

fn sorted_count() -> u32 {
    return sorted_topk_params().count;
}

fn sorted_width() -> u32 {
    return sorted_topk_params().width;
}

fn element_at(row: u32, i: u32) -> u32 {
    let p = sorted_topk_params();
    return (row / p.inner * p.count + i) * p.inner + row % p.inner;
}

fn before(row: u32, a: u32, b: u32) -> bool {
    return precedes(x0(element_at(row, a)), x0(element_at(row, b)));
}

// Keys of the numbers of a run, which take turns with them: whole numbers, the greatest first, where elements have such (`KEYED`), else
// elements.
var<workgroup> run_keys: array<Key, 2048>;

fn load_run(row: u32, size: u32, lane: u32) {
    for (var i = lane; i < size; i += 256u) {
        if (run_numbers[i] < sorted_count()) {
            run_keys[i] = key_of(x0(element_at(row, run_numbers[i])));
        }
    }
}

fn number_goes_before(v: Key, a: u32, w: Key, b: u32) -> bool {
    if (a >= sorted_count() || b >= sorted_count()) {
        return a < b;
    }
    return leads(v, w) || (!leads(w, v) && a < b);
}

fn pair_goes_before(row: u32, i: u32, j: u32) -> bool {
    return number_goes_before(run_keys[i], run_numbers[i], run_keys[j], run_numbers[j]);
}

fn swap_pair(i: u32, j: u32) {
    let a = run_numbers[i];
    let v = run_keys[i];
    run_numbers[i] = run_numbers[j];
    run_keys[i] = run_keys[j];
    run_numbers[j] = a;
    run_keys[j] = v;
}

// The first key of each thread's elements, and the key that none of the run's first elements follows.
var<workgroup> first_keys: array<Key, 256>;

var<workgroup> bound: Key;

// The elements of a run with keys up to the bound, as far as there is room, and their count.
var<workgroup> few_keys: array<Key, 256>;

var<workgroup> few_numbers: array<u32, 256>;

var<workgroup> few: atomic<u32>;

// Finds elements of a run among which its first `kept` ones are, and returns their count: as many threads have one as early as the bound.
fn find_few(size: u32, kept: u32, lane: u32) -> u32 {
    var own = Key();
    for (var i = lane; i < size; i += 256u) {
        if (run_numbers[i] < sorted_count() && leads(run_keys[i], own)) {
            own = run_keys[i];
        }
    }
    first_keys[lane] = own;
    if (lane == 0u) {
        atomicStore(&few, 0u);
    }
    workgroupBarrier();
    var rank = 0u;
    for (var t = 0u; t < 256u; t++) {
        let other = first_keys[t];
        rank += select(0u, 1u, leads(other, own) || (!leads(own, other) && t < lane));
    }
    if (rank + 1u == kept) {
        bound = own;
    }
    workgroupBarrier();
    for (var i = lane; i < size; i += 256u) {
        if (run_numbers[i] < sorted_count() && !leads(bound, run_keys[i])) {
            let slot = atomicAdd(&few, 1u);
            if (slot < 256u) {
                few_keys[slot] = run_keys[i];
                few_numbers[slot] = run_numbers[i];
            }
        }
    }
    return workgroupUniformLoad(&few);
}

// Puts few elements in the places of the run's first ones, each by the number of those that go before it.
fn order_few(count: u32, kept: u32, lane: u32) {
    if (lane < count) {
        var rank = 0u;
        for (var t = 0u; t < count; t++) {
            let before = number_goes_before(few_keys[t], few_numbers[t], few_keys[lane], few_numbers[lane]);
            rank += select(0u, 1u, before);
        }
        run_numbers[rank] = few_numbers[lane];
    }
    for (var i = count + lane; i < kept; i += 256u) {
        run_numbers[i] = sorted_count() + i;
    }
    workgroupBarrier();
}

// Orders the first `kept` elements of a run of a power of two of numbers.
fn order_first(row: u32, size: u32, kept: u32, lane: u32) {
    if (KEYED && kept <= 256u) {
        workgroupBarrier();
        load_run(row, size, lane);
        let count = find_few(size, kept, lane);
        if (count <= 256u) {
            order_few(count, kept, lane);
            return;
        }
    }
    order_run(row, 0u, size, lane);
}

// Sorts runs of the lo() numbers of a list, and keeps the first ones of each as the next list. List hi() is that of all elements for 0;
// the others take turns in scratch memory.
@compute @workgroup_size(256)
fn sort_heads(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = block_of(id, blocks);
    if (block >= grid()) {
        return;
    }
    let p = sorted_topk_params();
    let runs = (lo() + 2047u) / 2048u;
    let row = block / runs;
    let run = block % runs;
    let base = row * p.words;
    let size = min(lo() - run * 2048u, 2048u);
    // A power of two of numbers; those that are none come last.
    let whole = select(2048u, 1u << (32u - countLeadingZeros(size - 1u)), size < 2048u);
    for (var i = lane; i < whole; i += 256u) {
        var number = p.count + i;
        if (i < size) {
            number = run * 2048u + i;
            if (hi() > 0u) {
                number = scratch[base + (hi() - 1u) % 2u * (p.words / 2u) + number];
            }
        }
        run_numbers[i] = number;
    }
    order_first(row, whole, p.kept, lane);
    for (var i = lane; i < p.kept; i += 256u) {
        var number = p.count + i;
        if (i < whole) {
            number = run_numbers[i];
        }
        scratch[base + hi() % 2u * (p.words / 2u) + run * p.kept + i] = number;
    }
}

// Takes an element of the result from sorted lines.
@compute @workgroup_size(64)
fn take(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = sorted_topk_params();
    let row = t / (p.kept * p.inner) * p.inner + t % p.inner;
    let i = scratch[row * p.words + p.first + t / p.inner % p.kept];
    emit0(t, x0(element_at(row, i)));
    emit1(t, i64(i32(i)));
}

// Stand-ins for what a generated module and the file of networks define.

var<workgroup> run_numbers: array<u32, 2048>;

fn order_run(row: u32, first: u32, size: u32, lane: u32) {
}

fn lo() -> u32 {
    return 1u;
}

fn hi() -> u32 {
    return 0u;
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

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn emit0(at: u32, v: f32) {
}

fn emit1(at: u32, v: i64) {
}

fn precedes(a: f32, b: f32) -> bool {
    return a > b;
}

alias Key = u32;

const KEYED: bool = true;

fn key_of(v: f32) -> Key {
    return bitcast<u32>(v);
}

fn leads(v: Key, w: Key) -> bool {
    return v > w;
}
