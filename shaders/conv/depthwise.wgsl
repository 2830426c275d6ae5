// Convolutions of single channels: four neighbouring results a thread at a time, which share weights or what is loaded under them.

fn depthwise(at: u32) -> Value {
    let p = windows_params();
    let w = windows();
    let own = parts(at, p.out_channels, volume(w.output));
    let taps = volume(w.kernel);
    let start = window_start(w, unflatten(own.z, w.output));
    var sum = bias(own.y);
    for (var q = 0u; q < taps; q++) {
        let i = under(start + unflatten(q, w.kernel) * w.dilation, w.input);
        if (i >= 0) {
            let place = lie(own.x, own.y / p.group_out_channels, p.channels, u32(i), volume(w.input));
            sum += x0(place) * x1(own.y * taps + q);
        }
    }
    return sum;
}

// Four channels of a place, channels last.
fn four_channels(p: WindowsParams, w: Windows, own: vec3<u32>) -> vec4<Value> {
    let taps = volume(w.kernel);
    let start = window_start(w, unflatten(own.z, w.output));
    var sum = vec4<Value>(bias(own.y), bias(own.y + 1u), bias(own.y + 2u), bias(own.y + 3u));
    var q = 0u;
    for (var z = 0; z < w.kernel.x; z++) {
        for (var y = 0; y < w.kernel.y; y++) {
            for (var x = 0; x < w.kernel.z; x++) {
                let i = under(start + vec3<i32>(z, y, x) * w.dilation, w.input);
                if (i >= 0) {
                    let place = lie(own.x, own.y, p.channels, u32(i), volume(w.input));
                    sum += fx0(place, 1u) * fx1(own.y * taps + q, taps);
                }
                q++;
            }
        }
    }
    return sum;
}

// The element of a row at x, 0 outside.
fn within(row: u32, x: i32, width: i32) -> Value {
    if (x < 0 || x >= width) {
        return Value(0);
    }
    return x0(row + u32(x));
}

fn four_within(row: u32, x: i32, step: i32, width: i32) -> vec4<Value> {
    if (x >= 0 && x + 3 * step < width) {
        return fx0(row + u32(x), u32(step));
    }
    return vec4<Value>(
        within(row, x, width),
        within(row, x + step, width),
        within(row, x + 2 * step, width),
        within(row, x + 3 * step, width),
    );
}

// Four places of a row of a channel.
fn four_places(p: WindowsParams, w: Windows, own: vec3<u32>) -> vec4<Value> {
    let taps = volume(w.kernel);
    let start = window_start(w, unflatten(own.z, w.output));
    let plane = lie(own.x, own.y / p.group_out_channels, p.channels, 0u, volume(w.input));
    var sum = vec4<Value>(bias(own.y));
    for (var z = 0; z < w.kernel.x; z++) {
        for (var y = 0; y < w.kernel.y; y++) {
            let at = start.xy + vec2<i32>(z, y) * w.dilation.xy;
            if (any(at < vec2<i32>(0)) || any(at >= w.input.xy)) {
                continue;
            }
            let row = plane + u32((at.x * w.input.y + at.y) * w.input.z);
            let weights = own.y * taps + u32((z * w.kernel.y + y) * w.kernel.z);
            var v = four_within(row, start.z, w.stride.z, w.input.z);
            sum += v * x1(weights);
            for (var x = 1; x < w.kernel.z; x++) {
                let begin = start.z + x * w.dilation.z;
                if (w.stride.z == w.dilation.z) {
                    // Three of them were loaded for the tap before.
                    v = vec4<Value>(v.yzw, within(row, begin + 3 * w.stride.z, w.input.z));
                } else {
                    v = four_within(row, begin, w.stride.z, w.input.z);
                }
                sum += v * x1(weights + u32(x));
            }
        }
    }
    return sum;
}

// Four neighbours of the result.
fn depthwise_four(at: u32) -> vec4<Value> {
    let p = windows_params();
    let w = windows();
    let own = parts(at, p.out_channels, volume(w.output));
    if (LAST) {
        if (p.group_out_channels == 1u && own.y + 4u <= p.channels) {
            return four_channels(p, w, own);
        }
    } else if (own.z % u32(w.output.z) + 4u <= u32(w.output.z)) {
        return four_places(p, w, own);
    }
    return vec4<Value>(depthwise(at), depthwise(at + 1u), depthwise(at + 2u), depthwise(at + 3u));
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

fn word(k: u32) -> u32 {
    return k;
}

const LAST: bool = false;

fn fx0(at: u32, step: u32) -> vec4<Value> {
    return vec4<Value>();
}

fn fx1(at: u32, step: u32) -> vec4<Value> {
    return vec4<Value>();
}
