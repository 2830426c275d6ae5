// Convolutions in tiles of workgroup memory. A launch goes over weights lo() .. hi() of an output channel, in order.

// The sum that row i and column j of a group have before this launch.
fn first_sum(batch: u32, i: u32, j: u32) -> f32 {
    let p = windows_params();
    let shape = conv_product(p, windows());
    if (i >= shape.rows || j >= shape.columns) {
        return 0.0;
    }
    let part = part_of(p, shape, batch);
    return resume(lie(part.image, part.channel + i, p.out_channels, j, shape.columns), bias(part.channel + i));
}

fn finish_sum(batch: u32, i: u32, j: u32, v: f32) {
    let p = windows_params();
    let shape = conv_product(p, windows());
    if (i >= shape.rows || j >= shape.columns) {
        return;
    }
    let part = part_of(p, shape, batch);
    let at = lie(part.image, part.channel + i, p.out_channels, j, shape.columns);
    if (hi() < shape.depth) {
        keep(at, v);
    } else {
        emit0(at, v);
    }
}

// Stores four windows of four channels, if they are there and finished: the windows of a channel are neighbours, or the channels.
fn finish_fours(batch: u32, i: u32, j: u32, s: Quad) -> bool {
    let p = windows_params();
    let shape = conv_product(p, windows());
    if (hi() < shape.depth || i + 4u > shape.rows || j + 4u > shape.columns) {
        return false;
    }
    let part = part_of(p, shape, batch);
    let at = lie(part.image, part.channel + i, p.out_channels, j, shape.columns);
    if (LAST) {
        let step = p.out_channels;
        emit_four0(at, vec4<f32>(s.a.x, s.b.x, s.c.x, s.d.x));
        emit_four0(at + step, vec4<f32>(s.a.y, s.b.y, s.c.y, s.d.y));
        emit_four0(at + 2u * step, vec4<f32>(s.a.z, s.b.z, s.c.z, s.d.z));
        emit_four0(at + 3u * step, vec4<f32>(s.a.w, s.b.w, s.c.w, s.d.w));
        return true;
    }
    emit_four0(at, s.a);
    emit_four0(at + shape.columns, s.b);
    emit_four0(at + 2u * shape.columns, s.c);
    emit_four0(at + 3u * shape.columns, s.d);
    return true;
}

// Element e of a tile of weights, for rows from i0 on.
fn load_a(shape: ConvProduct, base: u32, e: u32, k0: u32, i0: u32) {
    let k = k0 + e % TILE_K;
    let r = e / TILE_K;
    var v = 0.0;
    if (k < shape.depth && i0 + r < shape.rows) {
        v = x1(base + (i0 + r) * shape.depth + k);
    }
    tile_a[e % TILE_K * TILE_STEP_A + r / 4u][r % 4u] = v;
}

// Starts of the windows of the columns, and distances of the tile's taps from them; the last number is the channel.
var<workgroup> column_starts: array<vec3<i32>, TILE_N>;

var<workgroup> tap_steps: array<vec4<i32>, TILE_K>;

// Element e of a tile of the elements under windows, for windows from j0 on; `base` is the first element of the group.
fn load_b(p: WindowsParams, shape: ConvProduct, size: vec3<i32>, base: u32, e: u32, k0: u32, j0: u32) {
    let k = e / TILE_N;
    let c = e % TILE_N;
    var v = 0.0;
    if (k0 + k < shape.depth && j0 + c < shape.columns) {
        let s = tap_steps[k];
        let i = under(column_starts[c] + s.xyz, size);
        if (i >= 0) {
            v = x0(base + lie(0u, u32(s.w), p.channels, u32(i), shape.places));
        }
    }
    tile_b[k * TILE_STEP_B + c / 4u][c % 4u] = v;
}

@compute @workgroup_size(TILE_THREADS)
fn conv_tiled(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = block_of(id, blocks);
    if (block >= grid()) {
        return;
    }
    let p = windows_params();
    let w = windows();
    let shape = conv_product(p, w);
    let across = (shape.columns + TILE_N - 1u) / TILE_N;
    let down = (shape.rows + TILE_M - 1u) / TILE_M;
    let j0 = block % across * TILE_N;
    let i0 = block / across % down * TILE_M;
    let batch = block / across / down;
    let part = part_of(p, shape, batch);
    let base = lie(part.image, part.source, p.channels, 0u, shape.places);
    let ti = lane / (TILE_N / 4u);
    let tj = lane % (TILE_N / 4u);
    for (var c = lane; c < TILE_N; c += TILE_THREADS) {
        column_starts[c] = window_start(w, unflatten(min(j0 + c, shape.columns - 1u), w.output));
    }
    var sums = first_sums(batch, i0 + ti * 4u, j0 + tj * 4u);
    for (var k0 = lo(); k0 < hi(); k0 += TILE_K) {
        if (lane < TILE_K) {
            let tap = weight_tap(k0 + lane, w.kernel, p.group_channels);
            tap_steps[lane] = vec4<i32>(tap.k * w.dilation, i32(tap.channel));
        }
        workgroupBarrier();
        for (var e = lane; e < TILE_M * TILE_K; e += 4u * TILE_THREADS) {
            load_a(shape, part.weights, e, k0, i0);
            load_a(shape, part.weights, e + TILE_THREADS, k0, i0);
            load_a(shape, part.weights, e + 2u * TILE_THREADS, k0, i0);
            load_a(shape, part.weights, e + 3u * TILE_THREADS, k0, i0);
        }
        for (var e = lane; e < TILE_N * TILE_K; e += 4u * TILE_THREADS) {
            load_b(p, shape, w.input, base, e, k0, j0);
            load_b(p, shape, w.input, base, e + TILE_THREADS, k0, j0);
            load_b(p, shape, w.input, base, e + 2u * TILE_THREADS, k0, j0);
            load_b(p, shape, w.input, base, e + 3u * TILE_THREADS, k0, j0);
        }
        workgroupBarrier();
        sums = multiply_tiles(sums, ti, tj);
        workgroupBarrier();
    }
    finish_sums(batch, i0 + ti * 4u, j0 + tj * 4u, sums);
}

// Stand-ins for what a generated module and the files of windows and tiles define.

struct WindowsParams {
    z_input: i32,
    z_output: i32,
    z_kernel: i32,
    z_stride: i32,
    z_dilation: i32,
    z_begin: i32,
    z_end: i32,
    y_input: i32,
    y_output: i32,
    y_kernel: i32,
    y_stride: i32,
    y_dilation: i32,
    y_begin: i32,
    y_end: i32,
    x_input: i32,
    x_output: i32,
    x_kernel: i32,
    x_stride: i32,
    x_dilation: i32,
    x_begin: i32,
    x_end: i32,
    channels: u32,
    out_channels: u32,
    group_channels: u32,
    group_out_channels: u32,
}

fn windows_params() -> WindowsParams {
    return WindowsParams(
        bitcast<i32>(word(0u)),
        bitcast<i32>(word(1u)),
        bitcast<i32>(word(2u)),
        bitcast<i32>(word(3u)),
        bitcast<i32>(word(4u)),
        bitcast<i32>(word(5u)),
        bitcast<i32>(word(6u)),
        bitcast<i32>(word(7u)),
        bitcast<i32>(word(8u)),
        bitcast<i32>(word(9u)),
        bitcast<i32>(word(10u)),
        bitcast<i32>(word(11u)),
        bitcast<i32>(word(12u)),
        bitcast<i32>(word(13u)),
        bitcast<i32>(word(14u)),
        bitcast<i32>(word(15u)),
        bitcast<i32>(word(16u)),
        bitcast<i32>(word(17u)),
        bitcast<i32>(word(18u)),
        bitcast<i32>(word(19u)),
        bitcast<i32>(word(20u)),
        word(21u),
        word(22u),
        word(23u),
        word(24u),
    );
}

struct Windows {
    input: vec3<i32>,
    output: vec3<i32>,
    kernel: vec3<i32>,
    stride: vec3<i32>,
    dilation: vec3<i32>,
    begin: vec3<i32>,
    end: vec3<i32>,
}

fn windows() -> Windows {
    let none = vec3<i32>(1);
    return Windows(none, none, none, none, none, none, none);
}

fn volume(size: vec3<i32>) -> u32 {
    return u32(size.x);
}

fn unflatten(at: u32, size: vec3<i32>) -> vec3<i32> {
    return size;
}

struct Tap {
    k: vec3<i32>,
    channel: u32,
}

fn weight_tap(q: u32, kernel: vec3<i32>, channels: u32) -> Tap {
    return Tap(kernel, q);
}

fn window_start(w: Windows, o: vec3<i32>) -> vec3<i32> {
    return o;
}

fn under(p: vec3<i32>, size: vec3<i32>) -> i32 {
    return p.x;
}

fn lie(image: u32, channel: u32, channels: u32, place: u32, places: u32) -> u32 {
    return place;
}

struct ConvProduct {
    rows: u32,
    columns: u32,
    depth: u32,
    taps: u32,
    places: u32,
}

fn conv_product(p: WindowsParams, w: Windows) -> ConvProduct {
    return ConvProduct(1u, 1u, 1u, 1u, 1u);
}

struct Part {
    image: u32,
    channel: u32,
    source: u32,
    weights: u32,
}

fn part_of(p: WindowsParams, c: ConvProduct, batch: u32) -> Part {
    return Part(batch, batch, batch, batch);
}

const TILE_M: u32 = 64u;

const TILE_N: u32 = 64u;

const TILE_K: u32 = 16u;

const TILE_THREADS: u32 = 256u;

const TILE_STEP_A: u32 = 17u;

const TILE_STEP_B: u32 = 17u;

var<workgroup> tile_a: array<vec4<f32>, 272>;

var<workgroup> tile_b: array<vec4<f32>, 272>;

struct Quad {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
}

fn first_sums(batch: u32, i: u32, j: u32) -> Quad {
    return Quad();
}

fn finish_sums(batch: u32, i: u32, j: u32, s: Quad) {
}

fn multiply_tiles(s: Quad, ti: u32, tj: u32) -> Quad {
    return s;
}

fn bias(channel: u32) -> f32 {
    return 0.0;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn x1(at: u32) -> f32 {
    return 0.0;
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

fn emit_four0(at: u32, v: vec4<f32>) {
}

const LAST: bool = false;
