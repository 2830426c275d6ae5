enable f16;

// Operands and results of convolutions by cooperative matrices: weights [rows, depth] and the elements under windows [depth,
// columns]. A launch goes over weights lo() .. hi() of an output channel, in order.

struct Tile {
    shape: ConvProduct,
    part: Part,
    size: vec3<i32>,
    kernel: vec3<i32>,
    dilation: vec3<i32>,
    channels: u32,
    group_channels: u32,
    out_channels: u32,
    // First element of the group.
    base: u32,
    i0: u32,
    j0: u32,
    // Whether lines of weights, and channels of the group, begin with whole quads of their tensors.
    whole_a: bool,
    whole_b: bool,
    // Start of the first of this thread's four windows, where it has the same ones at all taps, and whether the next three
    // follow it side by side.
    start: vec4<i32>,
    side_by_side: bool,
}

// Starts of the windows of the columns, and distances of the tile's taps from them: along three axes, and among the elements of
// the image. Windows and taps that are none are OUTSIDE.
var<workgroup> column_starts: array<vec4<i32>, TILE_N>;

var<workgroup> tap_steps: array<vec4<i32>, TILE_K>;

// Distances of all taps of a small kernel, of the first channel.
const SMALL: u32 = 64u;

var<workgroup> kernel_steps: array<vec4<i32>, SMALL>;

const OUTSIDE: vec4<i32> = vec4<i32>(-0x40000000, 0, 0, 0);

// A position with its place among the elements of a channel, `unit` elements apart.
fn with_place(p: vec3<i32>, size: vec3<i32>, unit: u32) -> vec4<i32> {
    return vec4<i32>(p, ((p.x * size.y + p.y) * size.z + p.z) * i32(unit));
}

fn column_start(w: Windows, j: u32, columns: u32, unit: u32) -> vec4<i32> {
    if (j >= columns) {
        return OUTSIDE;
    }
    return with_place(window_start(w, unflatten(j, w.output)), w.input, unit);
}

fn start_tile(block: u32, lane: u32) -> Tile {
    let p = windows_params();
    let w = windows();
    let shape = conv_product(p, w);
    let across = (shape.columns + TILE_N - 1u) / TILE_N;
    let down = (shape.rows + TILE_M - 1u) / TILE_M;
    let j0 = block % across * TILE_N;
    let part = part_of(p, shape, block / across / down);
    let unit = select(1u, p.channels, LAST);
    for (var c = lane; c < TILE_N; c += THREADS) {
        column_starts[c] = column_start(w, j0 + c, shape.columns, unit);
    }
    for (var q = lane; q < shape.taps && shape.taps <= SMALL; q += THREADS) {
        kernel_steps[q] = with_place(unflatten(q, w.kernel) * w.dilation, w.input, unit);
    }
    let own = j0 + lane % RUN_B * 4u;
    let start = column_start(w, own, shape.columns, unit);
    let last = column_start(w, own + 3u, shape.columns, unit);
    return Tile(
        shape,
        part,
        w.input,
        w.kernel,
        w.dilation,
        p.channels,
        p.group_channels,
        p.out_channels,
        lie(part.image, part.source, p.channels, 0u, shape.places),
        block / across % down * TILE_M,
        j0,
        WHOLE_A && ((part.weights | shape.depth) & 3u) == 0u,
        WHOLE_B && ((part.source | p.channels | p.group_channels) & 3u) == 0u,
        start,
        WHOLE_B && !LAST && THREADS % RUN_B == 0u && all(last.xyz == start.xyz + vec3<i32>(0, 0, 3)),
    );
}

// The distance of weight q of an output channel.
fn step_of(t: Tile, q: u32) -> vec4<i32> {
    if (q >= t.shape.depth) {
        return OUTSIDE;
    }
    let unit = select(1u, t.channels, LAST);
    let of_channel = select(t.shape.places, 1u, LAST);
    if (t.shape.taps > SMALL) {
        let tap = weight_tap(q, t.kernel, t.group_channels);
        let step = with_place(tap.k * t.dilation, t.size, unit);
        return step + vec4<i32>(0, 0, 0, i32(tap.channel * of_channel));
    }
    let line = select(t.shape.taps, t.group_channels, LAST);
    let tap = select(q % line, q / line, LAST);
    let channel = select(q / line, q % line, LAST);
    return kernel_steps[tap] + vec4<i32>(0, 0, 0, i32(channel * of_channel));
}

fn prepare(t: Tile, k0: u32, lane: u32) {
    for (var k = lane; k < TILE_K; k += THREADS) {
        tap_steps[k] = step_of(t, k0 + k);
    }
}

// Four weights of an output channel.
fn quad_of_a(t: Tile, k0: u32, e: u32) -> vec4<f16> {
    let i = t.i0 + e / RUN_A;
    let k = k0 + e % RUN_A * 4u;
    let at = t.part.weights + i * t.shape.depth + k;
    var v = vec4<f16>();
    if (i >= t.shape.rows) {
        return v;
    }
    if (t.whole_a) {
        if (k < t.shape.depth) {
            return quad1(at);
        }
        return v;
    }
    if (WHOLE_A && k < t.shape.depth) {
        return first_ones(shifted(quad1(at), quad1(at + 4u), at & 3u), t.shape.depth - k);
    }
    for (var c = 0u; c < 4u; c++) {
        if (k + c < t.shape.depth) {
            v[c] = f16(x1(at + c));
        }
    }
    return v;
}

fn is_inside(t: Tile, p: vec4<i32>) -> bool {
    return all(bitcast<vec3<u32>>(p.xyz) < bitcast<vec3<u32>>(t.size));
}

// The place in the tensor, of the group's first element if it is not needed. Loads without branches are on their way together.
fn place_of(t: Tile, p: vec4<i32>, needed: bool) -> u32 {
    return t.base + select(0u, u32(p.w), needed);
}

// The element under window `column` of the tile and tap `k` of it.
fn element_under(t: Tile, column: u32, k: u32) -> f16 {
    let p = column_starts[column] + tap_steps[k];
    let inside = is_inside(t, p);
    return select(0.0h, f16(x0(place_of(t, p, inside))), inside);
}

// Four elements of a window from tap k on.
fn four_of_window(t: Tile, column: u32, k: u32) -> vec4<f16> {
    if (t.whole_b) {
        let p = column_starts[column] + tap_steps[k];
        let inside = is_inside(t, p);
        return select(vec4<f16>(), quad0(place_of(t, p, inside)), inside);
    }
    return vec4<f16>(
        element_under(t, column, k),
        element_under(t, column, k + 1u),
        element_under(t, column, k + 2u),
        element_under(t, column, k + 3u),
    );
}

// Elements of four windows at one tap.
fn four_at_tap(t: Tile, column: u32, k: u32) -> vec4<f16> {
    if (t.side_by_side) {
        // Neighbours, of which the first ones or the last ones may be in the padding.
        let p = t.start + tap_steps[k];
        let x = vec4<i32>(p.z) + vec4<i32>(0, 1, 2, 3);
        let rows = bitcast<vec2<u32>>(p.xy) < bitcast<vec2<u32>>(t.size.xy);
        let inside = vec4<bool>(all(rows)) & (bitcast<vec4<u32>>(x) < vec4<u32>(u32(t.size.z)));
        let at = place_of(t, p, any(inside));
        return select(vec4<f16>(), shifted(quad0(at), quad0(at + 4u), at & 3u), inside);
    }
    return vec4<f16>(
        element_under(t, column, k),
        element_under(t, column + 1u, k),
        element_under(t, column + 2u, k),
        element_under(t, column + 3u, k),
    );
}

fn quad_of_b(t: Tile, k0: u32, e: u32) -> vec4<f16> {
    let line = e / RUN_B;
    let run = e % RUN_B * 4u;
    if (e >= TILE_K * TILE_N / 4u) {
        return vec4<f16>();
    }
    if (ALONG_B) {
        return four_of_window(t, line, run);
    }
    return four_at_tap(t, run, line);
}

// Stores the sums of four windows of a channel, or of four channels of a window, whichever are neighbours.
fn finish_four(t: Tile, i: u32, j: u32, v: vec4<f32>) {
    let row = t.i0 + i;
    let column = t.j0 + j;
    if (row >= t.shape.rows || column >= t.shape.columns) {
        return;
    }
    let down = select(0u, 1u, BY_COLUMNS);
    let count = min(4u, select(t.shape.columns - column, t.shape.rows - row, BY_COLUMNS));
    let channel = t.part.channel + row;
    let at = lie(t.part.image, channel, t.out_channels, column, t.shape.columns);
    if (lo() == 0u && hi() >= t.shape.depth && count == 4u) {
        let first = bias(channel);
        let biases = vec4<f32>(first, bias(channel + down), bias(channel + 2u * down), bias(channel + 3u * down));
        emit_four0(at, v + biases);
        return;
    }
    for (var c = 0u; c < count; c++) {
        let sum = resume(at + c, bias(channel + c * down)) + v[c];
        if (hi() < t.shape.depth) {
            keep(at + c, sum);
        } else {
            emit0(at + c, sum);
        }
    }
}

// Stand-ins for what a generated module and the files of windows and products define.

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

const THREADS: u32 = 128u;

const RUN_A: u32 = 4u;

const RUN_B: u32 = 16u;

const ALONG_B: bool = false;

const BY_COLUMNS: bool = false;

const WHOLE_A: bool = true;

const WHOLE_B: bool = true;

fn quad0(at: u32) -> vec4<f16> {
    return vec4<f16>();
}

fn quad1(at: u32) -> vec4<f16> {
    return vec4<f16>();
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

fn emit_four0(at: u32, v: vec4<f32>) {
}

fn word(k: u32) -> u32 {
    return k;
}

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}

fn shifted(low: vec4<f16>, high: vec4<f16>, r: u32) -> vec4<f16> {
    return low;
}

fn first_ones(v: vec4<f16>, n: u32) -> vec4<f16> {
    return v;
}

const LAST: bool = false;
