// Convolutions whose taps are moved by data. A launch goes over taps lo() .. hi() of all channels, the taps of a channel in a row.

// The value under tap k of window o of a plane, which starts at element `plane`: interpolated between the elements around the
// place that the offsets of `slot` move the tap to.
fn moved_value(w: Windows, plane: u32, slot: u32, o: vec3<i32>, k: vec3<i32>, flat: u32) -> f32 {
    let missing = 3u - RANK;
    let start = window_start(w, o) + k * w.dilation;
    var low = vec3<i32>(0);
    var part = vec3<f32>(0.0);
    for (var d = missing; d < 3u; d++) {
        let moved = x2((slot * RANK + d - missing) * volume(w.output) + flat);
        let x = f32(start[d]) + moved;
        let base = floor(x);
        low[d] = f_to_i32(base);
        part[d] = x - base;
    }
    var sum = 0.0;
    for (var c = 0u; c < 8u; c++) {
        var weight = 1.0;
        var position = 0;
        var within = true;
        for (var d = 0u; d < 3u; d++) {
            let up = (c >> d) & 1u;
            let i = low[d] + i32(up);
            within = within && i >= 0 && i < w.input[d] && (d >= missing || up == 0u);
            position = position * w.input[d] + i;
            weight = weight * select(1.0 - part[d], part[d], up == 1u);
        }
        if (within) {
            sum += weight * x0(plane + u32(position));
        }
    }
    return sum;
}

fn deform_conv_sum(at: u32) -> f32 {
    let p = windows_params();
    let w = windows();
    let taps = volume(w.kernel);
    let places = volume(w.output);
    let flat = at % places;
    let o = unflatten(flat, w.output);
    let channel = at / places % p.out_channels;
    let image = at / places / p.out_channels;
    let first = channel / p.group_out_channels * p.group_channels;
    let each = (p.channels + OFFSET_GROUPS - 1u) / OFFSET_GROUPS;
    var sum = resume(at, bias(channel));
    var tap = tap_of(lo(), w.kernel);
    for (var q = lo(); q < hi(); q++) {
        let source = first + tap.channel;
        let group = image * OFFSET_GROUPS + source / each;
        let slot = group * taps + q % taps;
        let v = moved_value(w, (image * p.channels + source) * volume(w.input), slot, o, tap.k, flat);
        sum += v * mask(slot * places + flat) * x1(channel * p.group_channels * taps + q);
        tap = next_tap(tap, w.kernel);
    }
    return sum;
}

fn deform_conv(at: u32) -> f32 {
    return deform_conv_sum(at);
}

// Stand-ins for what a generated module or the file of windows defines.

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

fn tap_of(q: u32, kernel: vec3<i32>) -> Tap {
    return Tap(kernel, q);
}

fn next_tap(t: Tap, kernel: vec3<i32>) -> Tap {
    return t;
}

fn window_start(w: Windows, o: vec3<i32>) -> vec3<i32> {
    return o;
}

const RANK: u32 = 2u;

const OFFSET_GROUPS: u32 = 1u;

fn bias(channel: u32) -> f32 {
    return 0.0;
}

fn mask(at: u32) -> f32 {
    return 1.0;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn x1(at: u32) -> f32 {
    return 0.0;
}

fn x2(at: u32) -> f32 {
    return 0.0;
}

fn f_to_i32(x: f32) -> i32 {
    return i32(x);
}

fn resume(at: u32, start: f32) -> f32 {
    return start;
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
