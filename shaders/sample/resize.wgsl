// Resizing by tables of taps, one for each axis that changes and those between: (element, weight) of every tap of every place of the
// result. A first element 0xffffffff says that the place is outside. Axes in front are one, as are those behind. There are two axes at
// least.

struct TappedResizeParams {
    combinations: u32,
    outside: f32,
    inner: u32,
    outer_stride: u32,
    dims: List,
    strides: List,
    taps: List,
    starts: List,
    table: List,
}

fn tapped_resize_params() -> TappedResizeParams {
    return TappedResizeParams(
        word(0u),
        bitcast<f32>(word(1u)),
        word(2u),
        word(3u),
        List(word(4u), word(5u)),
        List(word(6u), word(7u)),
        List(word(8u), word(9u)),
        List(word(10u), word(11u)),
        List(word(12u), word(13u)),
    );
}

// Taps of a place of an axis.
struct Taps {
    first: u32,
    count: u32,
    stride: u32,
    outside: bool,
}

// Element of a tap in the table, and its weight, which follows.
fn element_of(p: TappedResizeParams, tap: u32) -> u32 {
    return far_item(p.table, tap);
}

fn weight_of(p: TappedResizeParams, tap: u32) -> f32 {
    return bitcast<f32>(far_item(p.table, tap + 1u));
}

fn taps_of(p: TappedResizeParams, d: u32, o: u32) -> Taps {
    let count = item(p.taps, d);
    let first = item(p.starts, d) + o * count * 2u;
    return Taps(first, count, item(p.strides, d), element_of(p, first) == 0xffffffffu);
}

// A product with an element; nothing where the weight is 0, whatever the element is.
fn weighed(weight: f32, v: f32) -> f32 {
    return select(weight * v, 0.0, weight == 0.0);
}

// The sum over all taps of two axes, from an element on.
fn sum_of_two(p: TappedResizeParams, start: u32, y: Taps, x: Taps) -> f32 {
    var sum = 0.0;
    for (var j = 0u; j < y.count; j++) {
        let row = start + element_of(p, y.first + 2u * j) * y.stride;
        let weight = weight_of(p, y.first + 2u * j);
        for (var i = 0u; i < x.count; i++) {
            let v = f32(x0(row + element_of(p, x.first + 2u * i) * x.stride));
            sum += weighed(weight_of(p, x.first + 2u * i) * weight, v);
        }
    }
    return sum;
}

// Two taps of each of two axes: places of rows from the start on, and their weights.
struct TwoRows {
    a: u32,
    b: u32,
    of_a: f32,
    of_b: f32,
}

fn rows_of(p: TappedResizeParams, start: u32, y: Taps) -> TwoRows {
    return TwoRows(
        start + element_of(p, y.first) * y.stride,
        start + element_of(p, y.first + 2u) * y.stride,
        weight_of(p, y.first),
        weight_of(p, y.first + 2u),
    );
}

// The sum over two rows and the two taps of a column.
fn sum_of_rows(p: TappedResizeParams, rows: TwoRows, tap: u32, stride: u32) -> f32 {
    let a = element_of(p, tap) * stride;
    let b = element_of(p, tap + 2u) * stride;
    let of_a = weight_of(p, tap);
    let of_b = weight_of(p, tap + 2u);
    let upper = weighed(of_a * rows.of_a, f32(x0(rows.a + a))) + weighed(of_b * rows.of_a, f32(x0(rows.a + b)));
    return upper + weighed(of_a * rows.of_b, f32(x0(rows.b + a))) + weighed(of_b * rows.of_b, f32(x0(rows.b + b)));
}

// Four neighbours of a row by two taps of each axis; their taps follow each other in the table.
fn four_of_rows(p: TappedResizeParams, start: u32, y: Taps, x: Taps) -> vec4<Value> {
    let rows = rows_of(p, start, y);
    let r = vec4<Value>(
        stored(sum_of_rows(p, rows, x.first, x.stride)),
        stored(sum_of_rows(p, rows, x.first + 4u, x.stride)),
        stored(sum_of_rows(p, rows, x.first + 8u, x.stride)),
        stored(sum_of_rows(p, rows, x.first + 12u, x.stride)),
    );
    let out = vec4<u32>(
        element_of(p, x.first),
        element_of(p, x.first + 4u),
        element_of(p, x.first + 8u),
        element_of(p, x.first + 12u),
    );
    let outside = vec4<bool>(y.outside) | (out == vec4<u32>(0xffffffffu));
    return select(r, vec4<Value>(stored(p.outside)), outside);
}

// Four neighbours behind the axes, which have the same taps.
fn four_behind(p: TappedResizeParams, start: u32, y: Taps, x: Taps) -> vec4<Value> {
    var sum = vec4<f32>();
    for (var j = 0u; j < y.count; j++) {
        let row = start + element_of(p, y.first + 2u * j) * y.stride;
        let of_row = weight_of(p, y.first + 2u * j);
        for (var i = 0u; i < x.count; i++) {
            let v = fx0(row + element_of(p, x.first + 2u * i) * x.stride, 1u);
            let weight = weight_of(p, x.first + 2u * i) * of_row;
            let one = vec4<f32>(f32(v.x), f32(v.y), f32(v.z), f32(v.w));
            sum += select(weight * one, vec4<f32>(), weight == 0.0);
        }
    }
    let found = vec4<Value>(stored(sum.x), stored(sum.y), stored(sum.z), stored(sum.w));
    return select(found, vec4<Value>(stored(p.outside)), y.outside || x.outside);
}

// The sum over combinations lo() .. hi() of taps and those of the launches before.
fn resize_sum(at: u32) -> f32 {
    let p = tapped_resize_params();
    var sum = resume(at, 0.0);
    for (var c = lo(); c < hi(); c++) {
        var rest = at / p.inner;
        var which = c;
        var source = at % p.inner;
        var weight = 1.0;
        for (var d = p.dims.count; d > 0u; d--) {
            let n = item(p.dims, d - 1u);
            let taps = item(p.taps, d - 1u);
            let o = rest % n;
            rest = rest / n;
            let tap = item(p.starts, d - 1u) + (o * taps + which % taps) * 2u;
            which = which / taps;
            source += element_of(p, tap) * item(p.strides, d - 1u);
            weight *= weight_of(p, tap);
        }
        if (weight != 0.0) {
            sum += weight * f32(x0(source + rest * p.outer_stride));
        }
    }
    return sum;
}

// Is a place outside of x? The first tap of some axis says so.
fn is_outside(p: TappedResizeParams, at: u32) -> bool {
    var rest = at / p.inner;
    for (var d = p.dims.count; d > 0u; d--) {
        let n = item(p.dims, d - 1u);
        let o = rest % n;
        rest = rest / n;
        if (taps_of(p, d - 1u, o).outside) {
            return true;
        }
    }
    return false;
}

// Whether two axes change, and one launch sums all of their taps.
fn of_two_axes(p: TappedResizeParams) -> bool {
    return p.dims.count == 2u && lo() == 0u && hi() == p.combinations;
}

fn resize(at: u32) -> Value {
    let p = tapped_resize_params();
    if (of_two_axes(p)) {
        let width = item(p.dims, 1u);
        let height = item(p.dims, 0u);
        let rest = at / p.inner;
        let y = taps_of(p, 0u, rest / width % height);
        let x = taps_of(p, 1u, rest % width);
        if (y.outside || x.outside) {
            return stored(p.outside);
        }
        return stored(sum_of_two(p, rest / width / height * p.outer_stride + at % p.inner, y, x));
    }
    if (is_outside(p, at)) {
        return stored(p.outside);
    }
    return stored(resize_sum(at));
}

// Four neighbours of the result.
fn resize_four(at: u32) -> vec4<Value> {
    let p = tapped_resize_params();
    let width = item(p.dims, 1u);
    let along = at % width;
    if (p.inner == 1u && of_two_axes(p) && along + 4u <= width) {
        let height = item(p.dims, 0u);
        let rest = at / width;
        let start = rest / height * p.outer_stride;
        let y = taps_of(p, 0u, rest % height);
        let left = taps_of(p, 1u, along);
        if (y.count == 2u && left.count == 2u) {
            return four_of_rows(p, start, y, left);
        }
        var r = vec4<Value>(stored(p.outside));
        for (var c = 0u; c < 4u; c++) {
            let x = taps_of(p, 1u, along + c);
            if (!y.outside && !x.outside) {
                r[c] = stored(sum_of_two(p, start, y, x));
            }
        }
        return r;
    }
    if (of_two_axes(p) && at % p.inner + 4u <= p.inner) {
        let height = item(p.dims, 0u);
        let place = at / p.inner;
        let start = place / width / height * p.outer_stride + at % p.inner;
        return four_behind(p, start, taps_of(p, 0u, place / width % height), taps_of(p, 1u, place % width));
    }
    return vec4<Value>(resize(at), resize(at + 1u), resize(at + 2u), resize(at + 3u));
}

// Stand-ins for what a generated module defines.

fn word(k: u32) -> u32 {
    return k;
}

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}

struct List {
    first: u32,
    count: u32,
}

fn item(list: List, i: u32) -> u32 {
    return list.first + i;
}

fn far_item(list: List, i: u32) -> u32 {
    return list.first + i;
}

fn resume(at: u32, start: f32) -> f32 {
    return start;
}

alias Value = f32;

fn x0(at: u32) -> Value {
    return Value();
}

fn fx0(at: u32, step: u32) -> vec4<Value> {
    return vec4<Value>();
}

fn stored(x: f32) -> Value {
    return x;
}
