// Windows C + s (A + B s) = 1 - (1 - s) (D - B (1 - s)) with s = sin^2(pi at / period).

struct WindowParams {
    period: u32,
    c: f32,
    a: f32,
    b: f32,
    d: f32,
}

fn window_params() -> WindowParams {
    return WindowParams(
        word(0u),
        bitcast<f32>(word(1u)),
        bitcast<f32>(word(2u)),
        bitcast<f32>(word(3u)),
        bitcast<f32>(word(4u)),
    );
}

fn window_weight(at: u32) -> f32 {
    let p = window_params();
    let n = p.period;
    if (n == 0u) {
        return 1.0;
    }
    let i = min(at, n - at);
    if (i <= n / 4u) {
        let x = sin_small(f32(i) / f32(n) * 3.1415926535897932);
        return p.c + x * x * (p.a + p.b * (x * x));
    }
    let x = sin_small(f32(n - 2u * i) / f32(n) * 1.5707963267948966);
    return 1.0 - x * x * (p.d - p.b * (x * x));
}

fn window_function(at: u32) -> Value {
    return converted(window_weight(at));
}

// Stand-ins for what a generated module defines.

alias Value = f32;

fn converted(v: f32) -> Value {
    return v;
}

fn sin_small(r: f32) -> f32 {
    return r;
}

fn word(k: u32) -> u32 {
    return k;
}
