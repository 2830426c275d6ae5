// Convolutions as products of the weights of a group [rows, depth] and the elements under all windows [depth, columns].

struct ConvProduct {
    // Output channels of a group.
    rows: u32,
    // Windows.
    columns: u32,
    // Taps of all channels.
    depth: u32,
    taps: u32,
    // Elements of a channel.
    places: u32,
}

fn conv_product(p: WindowsParams, w: Windows) -> ConvProduct {
    let taps = volume(w.kernel);
    return ConvProduct(p.group_out_channels, volume(w.output), p.group_channels * taps, taps, volume(w.input));
}

// A group of an image: its first output channel and input channel, and its first weight.
struct Part {
    image: u32,
    channel: u32,
    source: u32,
    weights: u32,
}

// Number `batch` of them; groups are counted before images.
fn part_of(p: WindowsParams, c: ConvProduct, batch: u32) -> Part {
    let groups = p.out_channels / c.rows;
    let group = batch % groups;
    return Part(batch / groups, group * c.rows, group * p.group_channels, group * c.rows * c.depth);
}

// The first positions of four windows.
struct FourWindows {
    z: vec4<i32>,
    y: vec4<i32>,
    x: vec4<i32>,
}

// Windows from `first` on; behind the last one, the last one.
fn four_windows(w: Windows, first: u32, count: u32) -> FourWindows {
    let j = min(vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u));
    let rest = j / u32(w.output.z);
    return FourWindows(
        vec4<i32>(rest / u32(w.output.y)) * w.stride.x - w.begin.x,
        vec4<i32>(rest % u32(w.output.y)) * w.stride.y - w.begin.y,
        vec4<i32>(j % u32(w.output.z)) * w.stride.z - w.begin.z,
    );
}

// The places, among the elements of a channel, at this distance from the first positions; -1 outside.
fn four_under(at: FourWindows, step: vec3<i32>, size: vec3<i32>) -> vec4<i32> {
    let z = at.z + step.x;
    let y = at.y + step.y;
    let x = at.x + step.z;
    let none = vec4<i32>(0);
    let low = (z >= none) & (y >= none) & (x >= none);
    let high = (z < vec4<i32>(size.x)) & (y < vec4<i32>(size.y)) & (x < vec4<i32>(size.z));
    return select(vec4<i32>(-1), (z * size.y + y) * size.z + x, low & high);
}

// Stand-ins for what the file of windows defines.

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

fn word(k: u32) -> u32 {
    return k;
}
