// Resizing by tables of taps, one for each dimension: (element, weight) of every tap of every place of the result. A first element
// 0xffffffff says that the place is outside.

struct ResizeParams {
    combinations: u32,
    outside: f32,
    dims: List,
    strides: List,
    taps: List,
    starts: List,
    table: List,
}

fn resize_params() -> ResizeParams {
    return ResizeParams(
        word(0u),
        bitcast<f32>(word(1u)),
        List(word(2u), word(3u)),
        List(word(4u), word(5u)),
        List(word(6u), word(7u)),
        List(word(8u), word(9u)),
        List(word(10u), word(11u)),
    );
}

// The sum over combinations lo() .. hi() of taps and those of the launches before.
fn resize_sum(at: u32) -> f32 {
    let p = resize_params();
    var sum = resume(at, 0.0);
    for (var c = lo(); c < hi(); c++) {
        var rest = at;
        var which = c;
        var source = 0u;
        var weight = 1.0;
        for (var d = p.dims.count; d > 0u; d--) {
            let n = item(p.dims, d - 1u);
            let taps = item(p.taps, d - 1u);
            let o = rest % n;
            rest = rest / n;
            let tap = item(p.starts, d - 1u) + (o * taps + which % taps) * 2u;
            which = which / taps;
            source += item(p.table, tap) * item(p.strides, d - 1u);
            weight *= item_f32(p.table, tap + 1u);
        }
        if (weight != 0.0) {
            sum += weight * f32(x0(source));
        }
    }
    return sum;
}

// Is a place outside of x? The first tap of some dimension says so.
fn is_outside(at: u32) -> bool {
    let p = resize_params();
    var rest = at;
    for (var d = p.dims.count; d > 0u; d--) {
        let n = item(p.dims, d - 1u);
        let o = rest % n;
        rest = rest / n;
        if (item(p.table, item(p.starts, d - 1u) + o * item(p.taps, d - 1u) * 2u) == 0xffffffffu) {
            return true;
        }
    }
    return false;
}

fn resize(at: u32) -> Value {
    if (is_outside(at)) {
        return stored(resize_params().outside);
    }
    return stored(resize_sum(at));
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

fn item_f32(list: List, i: u32) -> f32 {
    return f32(list.first + i);
}

fn resume(at: u32, start: f32) -> f32 {
    return start;
}

alias Value = f32;

fn x0(at: u32) -> Value {
    return Value();
}

fn stored(x: f32) -> Value {
    return x;
}
