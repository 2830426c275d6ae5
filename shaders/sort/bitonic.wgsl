// Sorting by bitonic networks. `before(row, a, b)` orders the sorted_count() numbers of a row, of which scratch[row * sorted_width() +
// place] has those in order; the width is a power of two, and what lies beyond the count comes last. A workgroup sorts a run of
// numbers in its own memory. Runs that are longer take a launch for each step of pairs far apart, a thread for each pair.

@compute @workgroup_size(64)
fn number_all(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    scratch[t] = t % sorted_width();
}

fn goes_before(row: u32, a: u32, b: u32) -> bool {
    if (a >= sorted_count() || b >= sorted_count()) {
        return a < b;
    }
    return before(row, a, b) || (!before(row, b, a) && a < b);
}

// Sorts runs of hi() numbers, upward and downward in turn, by pairs lo() apart.
@compute @workgroup_size(64)
fn sort_step(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let width = sorted_width();
    let row = t / (width / 2u);
    let p = t % (width / 2u);
    let i = p / lo() * lo() * 2u + p % lo();
    let at = row * width + i;
    let a = scratch[at];
    let b = scratch[at + lo()];
    let upward = (i & hi()) == 0u;
    if (goes_before(row, b, a) == upward) {
        scratch[at] = b;
        scratch[at + lo()] = a;
    }
}

// Numbers of a run.
var<workgroup> run_numbers: array<u32, 2048>;

// Loads elements of a run before its numbers are compared; does nothing where `before` loads by itself.
fn load_run(row: u32, size: u32, lane: u32) {
}

// Compares the numbers at two places of a run.
fn pair_goes_before(row: u32, i: u32, j: u32) -> bool {
    return goes_before(row, run_numbers[i], run_numbers[j]);
}

fn swap_pair(i: u32, j: u32) {
    let a = run_numbers[i];
    run_numbers[i] = run_numbers[j];
    run_numbers[j] = a;
}

// Orders the pairs 2^shift apart among `size` numbers of a run whose first one is at `first`; lists of `list` numbers go upward and
// downward in turn.
fn order_pairs(row: u32, first: u32, size: u32, shift: u32, list: u32, lane: u32) {
    let apart = 1u << shift;
    for (var p = lane; p < size / 2u; p += 256u) {
        let i = ((p >> shift) << (shift + 1u)) + (p & (apart - 1u));
        let upward = ((first + i) & list) == 0u;
        if (pair_goes_before(row, i + apart, i) == upward) {
            swap_pair(i, i + apart);
        }
    }
    workgroupBarrier();
}

// Sorts the `size` numbers of a run: lists of two, of four and so on.
fn order_run(row: u32, first: u32, size: u32, lane: u32) {
    workgroupBarrier();
    load_run(row, size, lane);
    workgroupBarrier();
    for (var n = 1u; (1u << n) <= size; n++) {
        for (var shift = n; shift > 0u; shift--) {
            order_pairs(row, first, size, shift - 1u, 1u << n, lane);
        }
    }
}

// Sorts runs of lo() numbers, upward and downward in turn.
@compute @workgroup_size(256)
fn sort_runs(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = block_of(id, blocks);
    if (block >= grid()) {
        return;
    }
    let width = sorted_width();
    let row = block / (width / lo());
    let first = block % (width / lo()) * lo();
    for (var i = lane; i < lo(); i += 256u) {
        run_numbers[i] = first + i;
    }
    order_run(row, first, lo(), lane);
    for (var i = lane; i < lo(); i += 256u) {
        scratch[row * width + first + i] = run_numbers[i];
    }
}

// Makes the last steps of lists of hi() numbers, of pairs less than lo() apart.
@compute @workgroup_size(256)
fn sort_ends(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = block_of(id, blocks);
    if (block >= grid()) {
        return;
    }
    let width = sorted_width();
    let row = block / (width / lo());
    let first = block % (width / lo()) * lo();
    for (var i = lane; i < lo(); i += 256u) {
        run_numbers[i] = scratch[row * width + first + i];
    }
    workgroupBarrier();
    load_run(row, lo(), lane);
    workgroupBarrier();
    for (var shift = firstTrailingBit(lo()); shift > 0u; shift--) {
        order_pairs(row, first, lo(), shift - 1u, hi(), lane);
    }
    for (var i = lane; i < lo(); i += 256u) {
        scratch[row * width + first + i] = run_numbers[i];
    }
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

fn sorted_count() -> u32 {
    return 1u;
}

fn sorted_width() -> u32 {
    return 1u;
}

fn before(row: u32, a: u32, b: u32) -> bool {
    return a < b;
}
