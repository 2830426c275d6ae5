// Pooling of regions into bins by samples between elements. HALF moves coordinates by half an element; MEAN takes the mean of a
// bin's samples, the greatest of their parts else. The last launch ends at MOST_SAMPLES.

struct RoiAlignParams {
    images: u32,
    channels: u32,
    height: u32,
    width: u32,
    rows: u32,
    columns: u32,
    samples: u32,
    scale: f32,
}

fn roi_align_params() -> RoiAlignParams {
    return RoiAlignParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
        word(6u),
        bitcast<f32>(word(7u)),
    );
}

struct Bins {
    start: f32,
    size: f32,
    samples: i32,
}

fn bins(low: f32, high: f32, n: u32) -> Bins {
    let p = roi_align_params();
    let shift = select(0.0, 0.5, HALF);
    let start = low * p.scale - shift;
    var length = high * p.scale - shift - start;
    if (!HALF) {
        length = max(length, 1.0);
    }
    let size = length / f32(n);
    var samples = i32(p.samples);
    if (samples <= 0) {
        samples = clamp(f_to_i32(ceil(size)), 0, 1024);
    }
    return Bins(start, size, samples);
}

fn sample_at(b: Bins, bin: u32, i: i32) -> f32 {
    return b.start + f32(bin) * b.size + (f32(i) + 0.5) * b.size / f32(b.samples);
}

// The two elements around a coordinate and the weight of the second; the first is -1 outside.
struct Around {
    low: i32,
    high: i32,
    part: f32,
}

fn around(v: f32, size: u32) -> Around {
    if (is_nan(v) || v < -1.0 || v > f32(size) || size == 0u) {
        return Around(-1, -1, 0.0);
    }
    let x = max(v, 0.0);
    let low = i32(x);
    let last = i32(size) - 1;
    if (low >= last) {
        return Around(last, last, 0.0);
    }
    return Around(low, low + 1, x - f32(low));
}

// Result of samples lo() .. hi() of a bin together with those of the launches before.
fn roi_align(at: u32) -> f32 {
    let p = roi_align_params();
    let ox = at % p.columns;
    let oy = at / p.columns % p.rows;
    let c = at / p.columns / p.rows % p.channels;
    let region = at / p.columns / p.rows / p.channels;
    let image = near2(region);
    if (image < 0 || image >= i32(p.images)) {
        return 0.0;
    }
    let rows = bins(x1(region * 4u + 1u), x1(region * 4u + 3u), p.rows);
    let columns = bins(x1(region * 4u), x1(region * 4u + 2u), p.columns);
    let plane = (u32(image) * p.channels + c) * p.height * p.width;
    let width = i32(p.width);
    let count = max(rows.samples, 0) * max(columns.samples, 0);
    var acc = resume(at, select(cf(0xff800000u), 0.0, MEAN));
    for (var k = i32(lo()); k < min(count, i32(hi())); k++) {
        let v = around(sample_at(rows, oy, k / columns.samples), p.height);
        let h = around(sample_at(columns, ox, k % columns.samples), p.width);
        var sum = 0.0;
        var most = 0.0;
        if (v.low >= 0 && h.low >= 0) {
            let a = (1.0 - v.part) * (1.0 - h.part) * x0(plane + u32(v.low * width + h.low));
            let b = (1.0 - v.part) * h.part * x0(plane + u32(v.low * width + h.high));
            let e = v.part * (1.0 - h.part) * x0(plane + u32(v.high * width + h.low));
            let f = v.part * h.part * x0(plane + u32(v.high * width + h.high));
            sum = a + b + e + f;
            most = max(max(a, b), max(e, f));
        }
        acc = select(max(acc, most), acc + sum, MEAN);
    }
    // The last launch ends beyond all samples.
    if (hi() < MOST_SAMPLES) {
        return acc;
    }
    if (count <= 0) {
        return 0.0;
    }
    return select(acc, acc / f32(count), MEAN);
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

fn resume(at: u32, start: f32) -> f32 {
    return start;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn x1(at: u32) -> f32 {
    return 0.0;
}

fn near2(at: u32) -> i32 {
    return 0;
}

fn cf(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

fn is_nan(x: f32) -> bool {
    return x != x;
}

fn f_to_i32(x: f32) -> i32 {
    return i32(x);
}

const HALF: bool = false;
const MEAN: bool = true;
const MOST_SAMPLES: u32 = 1u;
