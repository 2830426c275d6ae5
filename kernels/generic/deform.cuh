// Convolution whose taps are moved by data.

// ---- deform_conv
// Words of `window.cuh`, then: 21 channels, 22 output channels, 23 channels of a group, 24 output channels of a
// group, 25 offset groups, 26 channels of an offset group, 27 dimensions.
DEV f32 tap_value(u32 plane, u32 slot, vec3<i32> o, vec3<i32> k, u32 flat) const {
    const auto missing = 3u - m(27u);
    auto low = vec3<i32>(0);
    auto part = vec3<f32>(0.0f);
    for (auto d = missing; d < 3u; d++) {
        const auto moved = x2((slot * m(27u) + d - missing) * out_volume() + flat);
        const auto x = f32(w_at(d, o[d], k[d])) + moved;
        const auto base = floor(x);
        low[d] = f_to_i32(base);
        part[d] = x - base;
    }
    f32 sum = 0.0f;
    for (u32 c = 0u; c < 8u; c++) {
        f32 w = 1.0f;
        i32 position = 0;
        bool within = true;
        for (u32 d = 0u; d < 3u; d++) {
            const auto up = (c >> d) & 1u;
            const auto i = low[d] + i32(up);
            within = within && inside(i, w_in(d)) && (d >= missing || up == 0u);
            position = position * w_in(d) + i;
            w = w * select(1.0f - part[d], part[d], up == 1u);
        }
        if (within) {
            sum += w * x0(plane + u32(position));
        }
    }
    return sum;
}

DEV f32 compute0(u32 at) const {
    const auto flat = at % out_volume();
    const auto o = unflatten(flat, w_out(1u), w_out(2u));
    const auto ch = (at / out_volume()) % m(22u);
    const auto image = at / out_volume() / m(22u);
    const auto first = ch / m(24u) * m(23u);
    auto sum = BIAS;
    for (u32 c = 0u; c < m(23u); c++) {
        const auto from_channel = first + c;
        const auto group = image * m(25u) + from_channel / m(26u);
        for (u32 tap = 0u; tap < taps(); tap++) {
            const auto k = unflatten(tap, w_kernel(1u), w_kernel(2u));
            const auto slot = group * taps() + tap;
            const auto v = tap_value((image * m(21u) + from_channel) * in_volume(), slot, o, k, flat);
            sum += v * MASK * x1((ch * m(23u) + c) * taps() + tap);
        }
    }
    return sum;
}
