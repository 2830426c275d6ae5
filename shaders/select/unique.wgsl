// The different slices along an axis. Slices are sorted (`sort/bitonic`); where one differs from the one before it, a new one of
// the different slices starts, and these positions are listed (`select/list`). Scratch memory has the sorted slices; the list; the
// number of each slice among the different ones; the place of each of these in the result; the number at each place; and the
// counts of the list.

struct SortedUniqueParams {
    count: u32,
    width: u32,
    inner: u32,
    outer: u32,
    different: u32,
}

fn sorted_unique_params() -> SortedUniqueParams {
    return SortedUniqueParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
    );
}

fn sorted_count() -> u32 {
    return sorted_unique_params().count;
}

fn sorted_width() -> u32 {
    return sorted_unique_params().width;
}

fn slice_element(slice: u32, i: u32) -> u32 {
    let p = sorted_unique_params();
    return (i / p.inner * p.count + slice) * p.inner + i % p.inner;
}

fn equal_slices(a: u32, b: u32) -> bool {
    let p = sorted_unique_params();
    for (var i = 0u; i < p.inner * p.outer; i++) {
        if (!same(x0(slice_element(a, i)), x0(slice_element(b, i)))) {
            return false;
        }
    }
    return true;
}

fn before(row: u32, a: u32, b: u32) -> bool {
    let p = sorted_unique_params();
    for (var i = 0u; i < p.inner * p.outer; i++) {
        let u = x0(slice_element(a, i));
        let v = x0(slice_element(b, i));
        if (less(u, v)) {
            return true;
        }
        if (less(v, u)) {
            return false;
        }
    }
    return false;
}

fn list_at() -> u32 {
    return sorted_unique_params().width;
}

fn which_at() -> u32 {
    let p = sorted_unique_params();
    return p.width + p.count;
}

fn place_at() -> u32 {
    let p = sorted_unique_params();
    return p.width + p.count * 2u;
}

fn order_at() -> u32 {
    let p = sorted_unique_params();
    return p.width + p.count * 3u;
}

fn counts_at() -> u32 {
    let p = sorted_unique_params();
    return p.width + p.count * 4u;
}

// Whether a different slice starts at position i of the sorted ones.
fn is_kept(i: u32) -> bool {
    return i == 0u || !equal_slices(scratch[i - 1u], scratch[i]);
}

// The first of equal slices, which is where they start among the sorted ones.
fn first_of(which: u32) -> u32 {
    return scratch[scratch[list_at() + which]];
}

// Finds the number of each slice: that of the last different one that starts at its position or before.
@compute @workgroup_size(64)
fn number_slices(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    var low = 0u;
    var high = sizes[0];
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (scratch[list_at() + middle] <= t) {
            low = middle;
        } else {
            high = middle;
        }
    }
    scratch[which_at() + scratch[t]] = low;
}

// Places different slices in their order.
@compute @workgroup_size(64)
fn place_sorted(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    scratch[place_at() + t] = t;
    scratch[order_at() + t] = t;
}

// Counts in runs of hi() slices those that are the first of their kind.
@compute @workgroup_size(64)
fn count_firsts(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    var found = 0u;
    for (var i = t * hi(); i < min((t + 1u) * hi(), lo()); i++) {
        if (first_of(scratch[which_at() + i]) == i) {
            found++;
        }
    }
    scratch[counts_at() + t] = found;
}

// Places different slices in the order of their first ones, by the summed counts of `count_firsts`.
@compute @workgroup_size(64)
fn place_found(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    var place = scratch[counts_at() + t];
    for (var i = t * hi(); i < min((t + 1u) * hi(), lo()); i++) {
        let which = scratch[which_at() + i];
        if (first_of(which) == i) {
            scratch[place_at() + which] = place;
            scratch[order_at() + place] = which;
            place++;
        }
    }
}

fn unique_value(at: u32) -> Value {
    let p = sorted_unique_params();
    let slice = first_of(scratch[order_at() + at / p.inner % p.different]);
    return x0((at / p.inner / p.different * p.count + slice) * p.inner + at % p.inner);
}

fn unique_first(at: u32) -> i64 {
    return i64(i32(first_of(scratch[order_at() + at])));
}

fn unique_place(at: u32) -> i64 {
    return i64(i32(scratch[place_at() + scratch[which_at() + at]]));
}

fn unique_count(at: u32) -> i64 {
    let p = sorted_unique_params();
    let which = scratch[order_at() + at];
    var end = p.count;
    if (which + 1u < p.different) {
        end = scratch[list_at() + which + 1u];
    }
    return i64(i32(end - scratch[list_at() + which]));
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

alias Value = f32;

fn x0(at: u32) -> Value {
    return 0.0;
}

fn same(a: Value, b: Value) -> bool {
    return a == b;
}

fn less(a: Value, b: Value) -> bool {
    return a < b;
}
