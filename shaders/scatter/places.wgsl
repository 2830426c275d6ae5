// Updates of many places at once, a thread an update. A place of the result has words in scratch memory, in which updates are combined
// by atomic operations whose result does not depend on their order. Then a map combines words with x. Inputs: x, indices, updates.

struct ScatterSlotsParams {
    updates: u32,
    slice: u32,
    size: u32,
    stride: u32,
    spare: u32,
    results: u32,
    sizes: List,
    strides: List,
}

fn scatter_slots_params() -> ScatterSlotsParams {
    return ScatterSlotsParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
        List(word(6u), word(7u)),
        List(word(8u), word(9u)),
    );
}

const NOWHERE: u32 = 0xffffffffu;

// The place of an update in the result, of a tuple's slice for TUPLES.
fn place_of(update: u32) -> u32 {
    let p = scatter_slots_params();
    if (TUPLES) {
        let tuple = update / p.slice;
        let depth = p.sizes.count;
        var place = update % p.slice;
        for (var d = 0u; d < depth; d++) {
            let i = from_end(x1(tuple * depth + d), item(p.sizes, d));
            if (i < 0) {
                return NOWHERE;
            }
            place += u32(i) * item(p.strides, d);
        }
        return place;
    }
    let i = from_end(x1(update), p.size);
    if (i < 0) {
        return NOWHERE;
    }
    return u32(i) * p.stride + strided(p.sizes, p.strides, update);
}

@compute @workgroup_size(64)
fn clear_places(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t < grid()) {
        atomicStore(&scratch[t], START);
    }
}

// Combines an update with the words of its place.
@compute @workgroup_size(64)
fn put_updates(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let place = place_of(t * update_step());
    if (place != NOWHERE) {
        put_update(place, t);
    }
}

// Stand-ins for what a generated module and the files of gathers and of words define.

@group(0) @binding(1) var<storage, read_write> scratch: array<atomic<u32>>;

const START: u32 = 0u;

const TUPLES: bool = false;

alias Index = i32;

fn x1(at: u32) -> Index {
    return Index();
}

fn from_end(v: Index, n: u32) -> i32 {
    return i32(v);
}

fn update_step() -> u32 {
    return 1u;
}

fn put_update(place: u32, t: u32) {
}

struct List {
    first: u32,
    count: u32,
}

fn item(list: List, i: u32) -> u32 {
    return list.first + i;
}

fn strided(dims: List, strides: List, at: u32) -> u32 {
    return at;
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
