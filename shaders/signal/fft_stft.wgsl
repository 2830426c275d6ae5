// Numbers of an `stft` for the passes of `fft.wgsl`. A row is a frame: sizes are [elements of the signal, elements of a transform that
// the result has, frames, parts of a number of the signal, elements from one frame to the next, elements of the window].

fn sample(row: u32, t: u32) -> vec2<f32> {
    let p = fft_params();
    let at = row % p.sizes[2] * p.sizes[4] + t;
    if (at >= p.sizes[0]) {
        return vec2<f32>(0.0, 0.0);
    }
    let place = (row / p.sizes[2] * p.sizes[0] + at) * p.sizes[3];
    let by = weight(t, p.sizes[5]);
    if (p.sizes[3] == 1u) {
        return vec2<f32>(x0(place) * by, 0.0);
    }
    return vec2<f32>(x0(place) * by, x0(place + 1u) * by);
}

fn result(row: u32, k: u32, v: vec2<f32>) {
    let bins = fft_params().sizes[1];
    if (k < bins) {
        emit0(2u * (row * bins + k), v.x);
        emit0(2u * (row * bins + k) + 1u, v.y);
    }
}

// Stand-ins for what a generated module defines.

struct FftParams {
    length: u32,
    radix: u32,
    stages: u32,
    before: u32,
    row: u32,
    rows: u32,
    batch: u32,
    source: u32,
    drain: u32,
    reads: u32,
    writes: u32,
    undo: u32,
    points: u32,
    sizes: array<u32, 6>,
}

fn fft_params() -> FftParams {
    return FftParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
        word(6u),
        word(7u),
        word(8u),
        word(9u),
        word(10u),
        word(11u),
        word(12u),
        array<u32, 6>(word(13u), word(14u), word(15u), word(16u), word(17u), word(18u)),
    );
}

fn weight(t: u32, n: u32) -> f32 {
    return 1.0;
}

fn word(k: u32) -> u32 {
    return k;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn emit0(at: u32, v: f32) {}
