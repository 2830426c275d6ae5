// Sliding windows over up to three spatial dimensions; fewer are led by dimensions of 1. For transposed operators `input` is
// the result and `output` the operand.

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
    let p = windows_params();
    return Windows(
        vec3<i32>(p.z_input, p.y_input, p.x_input),
        vec3<i32>(p.z_output, p.y_output, p.x_output),
        vec3<i32>(p.z_kernel, p.y_kernel, p.x_kernel),
        vec3<i32>(p.z_stride, p.y_stride, p.x_stride),
        vec3<i32>(p.z_dilation, p.y_dilation, p.x_dilation),
        vec3<i32>(p.z_begin, p.y_begin, p.x_begin),
        vec3<i32>(p.z_end, p.y_end, p.x_end),
    );
}

fn volume(size: vec3<i32>) -> u32 {
    return u32(size.x * size.y * size.z);
}

// Three coordinates in a box of this size.
fn unflatten(at: u32, size: vec3<i32>) -> vec3<i32> {
    let x = i32(at % u32(size.z));
    let rest = at / u32(size.z);
    return vec3<i32>(i32(rest / u32(size.y)), i32(rest % u32(size.y)), x);
}

// A tap of a kernel, and the number of all of them that go before it.
struct Tap {
    k: vec3<i32>,
    channel: u32,
}

fn tap_of(q: u32, kernel: vec3<i32>) -> Tap {
    let taps = volume(kernel);
    return Tap(unflatten(q % taps, kernel), q / taps);
}

// The tap after this one of kernels of this size; behind the last one comes the first of the next channel.
fn next_tap(t: Tap, kernel: vec3<i32>) -> Tap {
    var n = t;
    n.k.z++;
    if (n.k.z == kernel.z) {
        n.k.z = 0;
        n.k.y++;
        if (n.k.y == kernel.y) {
            n.k.y = 0;
            n.k.x++;
            if (n.k.x == kernel.x) {
                n.k.x = 0;
                n.channel++;
            }
        }
    }
    return n;
}

// The position of the first tap of window o.
fn window_start(w: Windows, o: vec3<i32>) -> vec3<i32> {
    return o * w.stride - w.begin;
}

// The place of a position among the elements of its channel; -1 outside.
fn under(p: vec3<i32>, size: vec3<i32>) -> i32 {
    let inside = all(p >= vec3<i32>(0)) && all(p < size);
    return select(-1, (p.x * size.y + p.y) * size.z + p.z, inside);
}

// The place of the operand's element that reaches p through a tap; -1 if none does.
fn reaching(w: Windows, p: vec3<i32>, t: Tap) -> i32 {
    let q = p + w.begin - t.k * w.dilation;
    let c = q / w.stride;
    let met = all(q >= vec3<i32>(0)) && all(c * w.stride == q) && all(c < w.output);
    return select(-1, (c.x * w.output.y + c.y) * w.output.z + c.z, met);
}

// Place of an element among `channels` channels of `places` places, with channels last where `LAST`.
fn lie(image: u32, channel: u32, channels: u32, place: u32, places: u32) -> u32 {
    if (LAST) {
        return (image * places + place) * channels + channel;
    }
    return (image * channels + channel) * places + place;
}

// The image, channel and place of an element.
fn parts(at: u32, channels: u32, places: u32) -> vec3<u32> {
    if (LAST) {
        let spot = at / channels;
        return vec3<u32>(spot / places, at % channels, spot % places);
    }
    let plane = at / places;
    return vec3<u32>(plane / channels, plane % channels, at % places);
}

// Position of the weight of a channel and a tap among the weights of an output channel.
fn weight_at(channel: u32, channels: u32, tap: u32, taps: u32) -> u32 {
    if (LAST) {
        return tap * channels + channel;
    }
    return channel * taps + tap;
}

// The channel and tap of a weight of an output channel, and of the next one.
fn weight_tap(q: u32, kernel: vec3<i32>, channels: u32) -> Tap {
    if (LAST) {
        return Tap(unflatten(q / channels, kernel), q % channels);
    }
    return tap_of(q, kernel);
}

fn next_weight(t: Tap, kernel: vec3<i32>, channels: u32) -> Tap {
    if (!LAST) {
        return next_tap(t, kernel);
    }
    if (t.channel + 1u < channels) {
        return Tap(t.k, t.channel + 1u);
    }
    return Tap(next_tap(t, kernel).k, 0u);
}

// Stand-ins for what a generated module defines.

const LAST: bool = false;

fn word(k: u32) -> u32 {
    return k;
}
