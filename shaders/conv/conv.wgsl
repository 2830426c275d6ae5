// Convolutions, one thread an element. A launch goes over weights lo() .. hi() of an output channel, in order.

fn conv_sum(at: u32) -> Value {
    let p = windows_params();
    let w = windows();
    let places = volume(w.input);
    let own = parts(at, p.out_channels, volume(w.output));
    let channel = own.y;
    let first = channel / p.group_out_channels * p.group_channels;
    let weights = channel * p.group_channels * volume(w.kernel);
    let start = window_start(w, unflatten(own.z, w.output));
    var sum = resume(at, bias(channel));
    var tap = weight_tap(lo(), w.kernel, p.group_channels);
    for (var q = lo(); q < hi(); q++) {
        let i = under(start + tap.k * w.dilation, w.input);
        if (i >= 0) {
            sum += x0(lie(own.x, first + tap.channel, p.channels, u32(i), places)) * x1(weights + q);
        }
        tap = next_weight(tap, w.kernel, p.group_channels);
    }
    return sum;
}

fn conv_direct(at: u32) -> Value {
    return conv_sum(at);
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

fn under(p: vec3<i32>, size: vec3<i32>) -> i32 {
    return p.x;
}

fn lie(image: u32, channel: u32, channels: u32, place: u32, places: u32) -> u32 {
    return place;
}

fn parts(at: u32, channels: u32, places: u32) -> vec3<u32> {
    return vec3<u32>(at);
}

fn weight_tap(q: u32, kernel: vec3<i32>, channels: u32) -> Tap {
    return Tap(kernel, q);
}

fn next_weight(t: Tap, kernel: vec3<i32>, channels: u32) -> Tap {
    return t;
}

alias Value = f32;

fn bias(channel: u32) -> Value {
    return Value(0);
}

fn x0(at: u32) -> Value {
    return Value(0);
}

fn x1(at: u32) -> Value {
    return Value(0);
}

fn resume(at: u32, start: Value) -> Value {
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
