// Transposes by tiles of workgroup memory: 64 neighbours of the result by 32 of the input. Both are walked in fours.

struct TransposeTiledParams {
    across: u32,
    down: u32,
    step: u32,
    pitch: u32,
    dims: List,
    strides: List,
    out_strides: List,
}

fn transpose_tiled_params() -> TransposeTiledParams {
    return TransposeTiledParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        List(word(4u), word(5u)),
        List(word(6u), word(7u)),
        List(word(8u), word(9u)),
    );
}

// Lines of 32 neighbours of the input; one more element, so that columns are in different banks.
const LINE: u32 = 33u;

var<workgroup> tile: array<Value, 2112>;

// Loads a line's four neighbours, as far as they are there.
fn load_four(line: u32, column: u32, at: u32, left: u32) {
    let to = line * LINE + column;
    if (left >= 4u) {
        let v = fx0(at, 1u);
        tile[to] = v.x;
        tile[to + 1u] = v.y;
        tile[to + 2u] = v.z;
        tile[to + 3u] = v.w;
        return;
    }
    for (var c = 0u; c < left; c++) {
        tile[to + c] = x0(at + c);
    }
}

@compute @workgroup_size(256)
fn transpose_tiled(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = block_of(id, blocks);
    if (block >= grid()) {
        return;
    }
    let p = transpose_tiled_params();
    let tiles_across = (p.across + 63u) / 64u;
    let tiles_down = (p.down + 31u) / 32u;
    let l0 = block % tiles_across * 64u;
    let q0 = block / tiles_across % tiles_down * 32u;
    let rest = block / tiles_across / tiles_down;
    let start = strided(p.dims, p.strides, rest);
    let to = strided(p.dims, p.out_strides, rest);
    for (var e = lane; e < 512u; e += 256u) {
        let line = e / 8u;
        let column = e % 8u * 4u;
        if (l0 + line < p.across && q0 + column < p.down) {
            load_four(line, column, start + (l0 + line) * p.step + q0 + column, p.down - q0 - column);
        }
    }
    workgroupBarrier();
    for (var e = lane; e < 512u; e += 256u) {
        let q = e / 16u;
        let l = e % 16u * 4u;
        if (q0 + q < p.down && l0 + l < p.across) {
            let at = l * LINE + q;
            let v = vec4<Value>(tile[at], tile[at + LINE], tile[at + 2u * LINE], tile[at + 3u * LINE]);
            emit_four0(to + (q0 + q) * p.pitch + l0 + l, v);
        }
    }
}

// Stand-ins for what a generated module defines.

alias Value = f32;

struct List {
    first: u32,
    count: u32,
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

fn x0(at: u32) -> Value {
    return Value();
}

fn fx0(at: u32, step: u32) -> vec4<Value> {
    return vec4<Value>();
}

fn emit_four0(at: u32, v: vec4<Value>) {
}
