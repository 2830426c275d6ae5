// Numbers of a `dft` for the passes of `fft.wgsl`. A row is a line along the axis: sizes are [elements of x that are given, those that
// count, elements of the result, pairs from one to the next, parts of a number of x, 0].

fn sample(row: u32, t: u32) -> vec2<f32> {
    let p = fft_params();
    var at = t;
    var mirrored = false;
    if (TO_REAL) {
        mirrored = 2u * t > p.points;
        at = select(t, p.points - t, mirrored);
    }
    if (at >= p.sizes[1]) {
        return vec2<f32>(0.0, 0.0);
    }
    let inner = p.sizes[3];
    let place = ((row / inner * p.sizes[0] + at) * inner + row % inner) * p.sizes[4];
    let re = x0(place);
    if (p.sizes[4] == 1u) {
        return vec2<f32>(re, 0.0);
    }
    let im = x0(place + 1u);
    // Backward is forward between conjugates; what is mirrored is one already. The parts of the first and the middle number of a real
    // signal's transform that are imaginary have no meaning.
    if (TO_REAL) {
        let single = at == 0u || 2u * at == p.points;
        return vec2<f32>(re, select(select(-im, im, mirrored), 0.0, single));
    }
    return vec2<f32>(re, select(im, -im, INVERSE));
}

fn result(row: u32, k: u32, v: vec2<f32>) {
    let p = fft_params();
    if (k >= p.sizes[2]) {
        return;
    }
    let inner = p.sizes[3];
    let at = (row / inner * p.sizes[2] + k) * inner + row % inner;
    if (TO_REAL) {
        emit0(at, v.x / f32(p.points));
    } else if (INVERSE) {
        emit0(2u * at, v.x / f32(p.points));
        emit0(2u * at + 1u, -v.y / f32(p.points));
    } else {
        emit0(2u * at, v.x);
        emit0(2u * at + 1u, v.y);
    }
}

// Stand-ins for what a generated module defines.

const INVERSE: bool = false;
const TO_REAL: bool = false;

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

fn word(k: u32) -> u32 {
    return k;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn emit0(at: u32, v: f32) {}
