// Pooling of windows: maxima, averages, norms. A launch goes over taps lo() .. hi().

// Taps of window o on elements or padding, along one dimension.
fn padded_taps(o: i32, input: i32, kernel: i32, stride: i32, dilation: i32, begin: i32, end: i32) -> i32 {
    let room = begin + input + end - o * stride;
    return min(max((room + dilation - 1) / dilation, 0), kernel);
}

// Taps of a window that starts here on elements, along one dimension.
fn real_taps(start: i32, input: i32, kernel: i32, dilation: i32) -> i32 {
    let before = min(max((dilation - 1 - start) / dilation, 0), kernel);
    let until = min(max((input - start + dilation - 1) / dilation, 0), kernel);
    return max(until - before, 0);
}

// How many taps of window o count.
fn counted_taps(w: Windows, o: vec3<i32>) -> i32 {
    if (PADDED) {
        return padded_taps(o.x, w.input.x, w.kernel.x, w.stride.x, w.dilation.x, w.begin.x, w.end.x)
            * padded_taps(o.y, w.input.y, w.kernel.y, w.stride.y, w.dilation.y, w.begin.y, w.end.y)
            * padded_taps(o.z, w.input.z, w.kernel.z, w.stride.z, w.dilation.z, w.begin.z, w.end.z);
    }
    let start = window_start(w, o);
    return real_taps(start.x, w.input.x, w.kernel.x, w.dilation.x)
        * real_taps(start.y, w.input.y, w.kernel.y, w.dilation.y)
        * real_taps(start.z, w.input.z, w.kernel.z, w.dilation.z);
}

fn pool_sum(at: u32) -> Value {
    let p = windows_params();
    let w = windows();
    let places = volume(w.input);
    let own = parts(at, p.channels, volume(w.output));
    let start = window_start(w, unflatten(own.z, w.output));
    var sum = resume(at, first());
    var tap = tap_of(lo(), w.kernel);
    for (var q = lo(); q < hi(); q++) {
        let i = under(start + tap.k * w.dilation, w.input);
        if (i >= 0) {
            sum = step(sum, x0(lie(own.x, own.y, p.channels, u32(i), places)));
        }
        tap = next_tap(tap, w.kernel);
    }
    return sum;
}

fn pool(at: u32) -> Value {
    let w = windows();
    let o = unflatten(parts(at, windows_params().channels, volume(w.output)).z, w.output);
    return last(pool_sum(at), counted_taps(w, o));
}

// The element of a row at x; outside of it what changes no sum.
fn pooled_at(row: u32, x: i32, width: i32) -> Value {
    if (x < 0 || x >= width) {
        return first();
    }
    return x0(row + u32(x));
}

fn four_pooled(row: u32, x: i32, by: i32, width: i32) -> vec4<Value> {
    if (x >= 0 && x + 3 * by < width) {
        return fx0(row + u32(x), u32(by));
    }
    return vec4<Value>(
        pooled_at(row, x, width),
        pooled_at(row, x + by, width),
        pooled_at(row, x + 2 * by, width),
        pooled_at(row, x + 3 * by, width),
    );
}

fn step_four(sum: vec4<Value>, v: vec4<Value>) -> vec4<Value> {
    return vec4<Value>(step(sum.x, v.x), step(sum.y, v.y), step(sum.z, v.z), step(sum.w, v.w));
}

// Sums of four windows side by side.
fn four_windows(p: WindowsParams, w: Windows, own: vec3<u32>, start: vec3<i32>) -> vec4<Value> {
    let plane = lie(own.x, own.y, p.channels, 0u, volume(w.input));
    var sum = vec4<Value>(first());
    for (var z = 0; z < w.kernel.x; z++) {
        for (var y = 0; y < w.kernel.y; y++) {
            let at = start.xy + vec2<i32>(z, y) * w.dilation.xy;
            if (all(at >= vec2<i32>(0)) && all(at < w.input.xy)) {
                let row = plane + u32((at.x * w.input.y + at.y) * w.input.z);
                var v = four_pooled(row, start.z, w.stride.z, w.input.z);
                sum = step_four(sum, v);
                for (var x = 1; x < w.kernel.z; x++) {
                    let begin = start.z + x * w.dilation.z;
                    if (w.stride.z == w.dilation.z) {
                        // Three of them were loaded for the tap before.
                        v = vec4<Value>(v.yzw, pooled_at(row, begin + 3 * w.stride.z, w.input.z));
                    } else {
                        v = four_pooled(row, begin, w.stride.z, w.input.z);
                    }
                    sum = step_four(sum, v);
                }
            }
        }
    }
    return sum;
}

// Sums of one window of four channels, channels last.
fn window_of_four(p: WindowsParams, w: Windows, own: vec3<u32>, start: vec3<i32>) -> vec4<Value> {
    var sum = vec4<Value>(first());
    var tap = tap_of(0u, w.kernel);
    for (var q = 0u; q < volume(w.kernel); q++) {
        let i = under(start + tap.k * w.dilation, w.input);
        if (i >= 0) {
            sum = step_four(sum, fx0(lie(own.x, own.y, p.channels, u32(i), volume(w.input)), 1u));
        }
        tap = next_tap(tap, w.kernel);
    }
    return sum;
}

// Four neighbours of the result.
fn pool_four(at: u32) -> vec4<Value> {
    let p = windows_params();
    let w = windows();
    let own = parts(at, p.channels, volume(w.output));
    let o = unflatten(own.z, w.output);
    let start = window_start(w, o);
    let whole = lo() == 0u && hi() == volume(w.kernel);
    if (LAST && whole && own.y + 4u <= p.channels) {
        let sum = window_of_four(p, w, own, start);
        let count = counted_taps(w, o);
        return vec4<Value>(last(sum.x, count), last(sum.y, count), last(sum.z, count), last(sum.w, count));
    }
    if (!LAST && whole && o.z + 4 <= w.output.z) {
        let sum = four_windows(p, w, own, start);
        return vec4<Value>(
            last(sum.x, counted_taps(w, o)),
            last(sum.y, counted_taps(w, o + vec3<i32>(0, 0, 1))),
            last(sum.z, counted_taps(w, o + vec3<i32>(0, 0, 2))),
            last(sum.w, counted_taps(w, o + vec3<i32>(0, 0, 3))),
        );
    }
    return vec4<Value>(pool(at), pool(at + 1u), pool(at + 2u), pool(at + 3u));
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

alias Value = f32;
const PADDED: bool = false;

fn first() -> Value {
    return Value(0);
}

fn step(sum: Value, v: Value) -> Value {
    return sum + v;
}

fn last(sum: Value, count: i32) -> Value {
    return sum;
}

fn x0(at: u32) -> Value {
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

fn fx0(at: u32, step: u32) -> vec4<Value> {
    return vec4<Value>();
}

const LAST: bool = false;
