// Convolution whose taps are moved by data.

// ---- deform_conv
// Words of `window.wgsl`, then: 21 channels, 22 output channels, 23 channels of a group, 24 output channels of a
// group, 25 offset groups, 26 channels of an offset group, 27 dimensions.
fn tap_value(plane: u32, slot: u32, o: vec3<i32>, k: vec3<i32>, flat: u32) -> f32 {
    let missing = 3u - m(27u);
    var low = vec3<i32>(0);
    var part = vec3<f32>(0.0);
    for (var d = missing; d < 3u; d++) {
        let moved = x2((slot * m(27u) + d - missing) * out_volume() + flat);
        let x = f32(w_at(d, o[d], k[d])) + moved;
        let base = floor(x);
        low[d] = f_to_i32(base);
        part[d] = x - base;
    }
    var sum = 0.0;
    for (var c = 0u; c < 8u; c++) {
        var w = 1.0;
        var position = 0;
        var within = true;
        for (var d = 0u; d < 3u; d++) {
            let up = (c >> d) & 1u;
            let i = low[d] + i32(up);
            within = within && inside(i, w_in(d)) && (d >= missing || up == 0u);
            position = position * w_in(d) + i;
            w = w * select(1.0 - part[d], part[d], up == 1u);
        }
        if (within) {
            sum += w * x0(plane + u32(position));
        }
    }
    return sum;
}

// Sums over taps lo() .. hi() of all channels of a group, the taps of a channel in a row.
fn total(at: u32) -> f32 {
    let flat = at % out_volume();
    let o = unflatten(flat, w_out(1u), w_out(2u));
    let ch = (at / out_volume()) % m(22u);
    let image = at / out_volume() / m(22u);
    let first = ch / m(24u) * m(23u);
    var sum = resume(at, BIAS);
    let kernel = kernel_size();
    var tap = tap_of(lo());
    for (var q = lo(); q < hi(); q++) {
        let from_channel = first + tap.channel;
        let group = image * m(25u) + from_channel / m(26u);
        let slot = group * taps() + q % taps();
        let v = tap_value((image * m(21u) + from_channel) * in_volume(), slot, o, tap.k, flat);
        sum += v * MASK * x1(ch * m(23u) * taps() + q);
        tap = next_tap(tap, kernel);
    }
    return sum;
}

fn compute0(at: u32) -> f32 {
    return total(at);
}
