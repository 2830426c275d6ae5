// Convolutions in blocks of registers. A launch goes over weights lo() .. hi() of an output channel, taps first, then channels.

struct Step {
    weight: u32,
}

fn left(at: u32, step: Step) -> Operand {
    return x1(at + step.weight);
}

// Places in channel 0 of the elements under a tap of four windows, and whether they lie inside.
struct FourPlaces {
    at: vec4<u32>,
    inside: vec4<bool>,
}

fn four_places(base: u32, step: u32, places: vec4<i32>) -> FourPlaces {
    return FourPlaces(base + vec4<u32>(max(places, vec4<i32>(0))) * step, places >= vec4<i32>(0));
}

// Their elements in a channel; what is outside is read at the first place, and counts as zero.
fn four_elements(places: FourPlaces, channel: u32) -> vec4<Operand> {
    let at = places.at + channel;
    return select(vec4<Operand>(), vec4<Operand>(x0(at.x), x0(at.y), x0(at.z), x0(at.w)), places.inside);
}

fn elements(first: FourPlaces, second: FourPlaces, channel: u32) -> Operands {
    var n: Operands;
    if (BLOCK_N == 1u) {
        n.a.x = select(Operand(), x0(first.at.x + channel), first.inside.x);
        return n;
    }
    n.a = four_elements(first, channel);
    if (BLOCK_N > 4u) {
        n.b = four_elements(second, channel);
    }
    return n;
}

// Sums that start from the biases of channels.
fn four_biases(channel: u32, first: u32, count: u32) -> Quad {
    let four = vec4<u32>(channel) + min(vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u));
    return Quad(
        vec4<Value>(bias(four.x)),
        vec4<Value>(bias(four.y)),
        vec4<Value>(bias(four.z)),
        vec4<Value>(bias(four.w)),
    );
}

fn biases(channel: u32, first: u32, count: u32) -> Block {
    var n: Half;
    n.a = four_biases(channel, first, count);
    if (BLOCK_M > 4u) {
        n.b = four_biases(channel, first + 4u, count);
    }
    if (BLOCK_M > 8u) {
        n.c = four_biases(channel, first + 8u, count);
        n.d = four_biases(channel, first + 12u, count);
    }
    return Block(n, n);
}

@compute @workgroup_size(64)
fn conv_block(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = windows_params();
    let w = windows();
    let shape = conv_product(p, w);
    let across = (shape.columns + BLOCK_N - 1u) / BLOCK_N;
    let down = (shape.rows + BLOCK_M - 1u) / BLOCK_M;
    let j = t % across * BLOCK_N;
    let i = t / across % down * BLOCK_M;
    let part = part_of(p, shape, t / across / down);
    let rows = starts_of(part.weights, i, shape.rows, shape.depth);
    let results = Results(
        lie(part.image, part.channel + i, p.out_channels, j, shape.columns),
        lie(0u, 1u, p.out_channels, 0u, shape.columns),
        lie(0u, 0u, p.out_channels, 1u, shape.columns),
        shape.rows - i,
        shape.columns - j,
    );
    let base = lie(part.image, part.source, p.channels, 0u, shape.places);
    let next_place = lie(0u, 0u, p.channels, 1u, shape.places);
    let next_channel = lie(0u, 1u, p.channels, 0u, shape.places);
    let first = four_windows(w, j, shape.columns);
    let second = four_windows(w, j + 4u, shape.columns);
    var sums: Block;
    if (lo() > 0u) {
        sums = kept_block(results);
    } else {
        sums = biases(part.channel, i, shape.rows);
    }
    let next_weight = weight_at(1u, p.group_channels, 0u, shape.taps);
    let last = hi();
    var q = lo();
    while (q < last) {
        // The place where a tap meets the windows is found once for a run of channels.
        let tap = q / p.group_channels;
        let c0 = q % p.group_channels;
        let count = min(min(p.group_channels - c0, last - q), RUN);
        let distance = unflatten(tap, w.kernel) * w.dilation;
        let first_places = four_places(base, next_place, four_under(first, distance, w.input));
        let second_places = four_places(base, next_place, four_under(second, distance, w.input));
        var weight = weight_at(c0, p.group_channels, tap, shape.taps);
        var channel = c0 * next_channel;
        var run = Block();
        for (var c = 0u; c < count; c++) {
            run = multiply(run, left_operands(rows, Step(weight)), elements(first_places, second_places, channel));
            weight += next_weight;
            channel += next_channel;
        }
        sums = add(sums, run);
        q += count;
    }
    store_block(results, sums, last >= shape.depth);
}

// Stand-ins for what a generated module and the files of windows and registers define.

alias Value = f32;

alias Operand = f32;

const BLOCK_M: u32 = 16u;

const BLOCK_N: u32 = 8u;

const RUN: u32 = 128u;

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

fn lie(image: u32, channel: u32, channels: u32, place: u32, places: u32) -> u32 {
    return place;
}

fn weight_at(channel: u32, channels: u32, tap: u32, taps: u32) -> u32 {
    return tap;
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

struct FourWindows {
    z: vec4<i32>,
    y: vec4<i32>,
    x: vec4<i32>,
}

fn four_windows(w: Windows, first: u32, count: u32) -> FourWindows {
    return FourWindows();
}

fn four_under(at: FourWindows, step: vec3<i32>, size: vec3<i32>) -> vec4<i32> {
    return at.z;
}

struct Quad {
    a: vec4<Value>,
    b: vec4<Value>,
    c: vec4<Value>,
    d: vec4<Value>,
}

struct Half {
    a: Quad,
    b: Quad,
    c: Quad,
    d: Quad,
}

struct Block {
    left: Half,
    right: Half,
}

struct Operands {
    a: vec4<Operand>,
    b: vec4<Operand>,
    c: vec4<Operand>,
    d: vec4<Operand>,
}

struct Starts {
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
}

struct Results {
    first: u32,
    row_step: u32,
    column_step: u32,
    rows: u32,
    columns: u32,
}

fn multiply(s: Block, rows: Operands, columns: Operands) -> Block {
    return s;
}

fn add(s: Block, t: Block) -> Block {
    return s;
}

fn starts_of(base: u32, first: u32, count: u32, step: u32) -> Starts {
    let none = vec4<u32>(0u);
    return Starts(none, none, none, none);
}

fn left_operands(at: Starts, step: Step) -> Operands {
    let none = vec4<Operand>(0);
    return Operands(none, none, none, none);
}

fn right_operands(at: Starts, step: Step) -> Operands {
    return left_operands(at, step);
}

fn kept_block(results: Results) -> Block {
    return Block();
}

fn store_block(results: Results, s: Block, done: bool) {
}

fn bias(channel: u32) -> Value {
    return Value(0);
}

fn x0(at: u32) -> Operand {
    return Operand(0);
}

fn x1(at: u32) -> Operand {
    return Operand(0);
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
