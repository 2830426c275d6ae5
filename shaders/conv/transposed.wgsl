// Transposed convolutions, and columns put together to an image. `input` of the windows is the result. A launch goes over products
// lo() .. hi(): of transposed convolutions all channels of a tap in a row, as all or none of them reach an element.

fn conv_transpose_sum(at: u32) -> Value {
    let p = windows_params();
    let w = windows();
    let taps = volume(w.kernel);
    let places = volume(w.output);
    let own = parts(at, p.out_channels, volume(w.input));
    let to = unflatten(own.z, w.input);
    let depth = p.group_out_channels;
    let first = own.y / depth * p.group_channels;
    // From a channel to the next.
    let step = select(places, 1u, LAST);
    let weight_step = depth * taps;
    var sum = resume(at, bias(own.y));
    var q = lo();
    while (q < hi()) {
        let tap = q / p.group_channels;
        let channel = q % p.group_channels;
        let count = min(p.group_channels - channel, hi() - q);
        q += count;
        let i = reaching(w, to, Tap(unflatten(tap, w.kernel), channel));
        if (i >= 0) {
            var element = lie(own.x, first + channel, p.channels, u32(i), places);
            var weight = ((first + channel) * depth + own.y % depth) * taps + tap;
            for (var c = 0u; c < count; c++) {
                sum += x0(element) * x1(weight);
                element += step;
                weight += weight_step;
            }
        }
    }
    return sum;
}

fn conv_transpose(at: u32) -> Value {
    return conv_transpose_sum(at);
}

// x is [N, C, taps, windows].
fn col2im_sum(at: u32) -> Value {
    let w = windows();
    let places = volume(w.input);
    let to = unflatten(at % places, w.input);
    let plane = at / places * volume(w.kernel);
    var sum = resume(at, bias(0u));
    var tap = tap_of(lo(), w.kernel);
    for (var q = lo(); q < hi(); q++) {
        let i = reaching(w, to, tap);
        if (i >= 0) {
            sum += x0((plane + q) * volume(w.output) + u32(i));
        }
        tap = next_tap(tap, w.kernel);
    }
    return sum;
}

fn col2im(at: u32) -> Value {
    return col2im_sum(at);
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

fn reaching(w: Windows, p: vec3<i32>, t: Tap) -> i32 {
    return p.x;
}

fn lie(image: u32, channel: u32, channels: u32, place: u32, places: u32) -> u32 {
    return place;
}

fn parts(at: u32, channels: u32, places: u32) -> vec3<u32> {
    return vec3<u32>(at);
}

const LAST: bool = false;

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
