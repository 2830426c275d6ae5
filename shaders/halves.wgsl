// Conversions of f16 by functions of the language. They take the place of those of `storage.wgsl` on devices that round to the nearest
// number with them, and keep subnormal numbers, infinities and NaN.

fn f16_to_f32(h: u32) -> f32 {
    return unpack2x16float(h).x;
}

fn f32_to_f16(x: f32) -> u32 {
    return pack2x16float(vec2<f32>(x, 0.0));
}

fn round_f16(x: f32) -> f32 {
    return unpack2x16float(pack2x16float(vec2<f32>(x, 0.0))).x;
}
