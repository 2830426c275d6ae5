// Fast Fourier transforms by Stockham passes, each of which makes transforms of `radix` points in the memory of a workgroup. Several
// passes make longer ones. Lengths that no passes make are convolutions with a chirp (Bluestein), of a length that they make. All are
// forward: the functions `sample` and `result` conjugate numbers where the operator asks for another direction.

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

// Two halves, from one of which a stage reads while it writes the other.
const HALF: u32 = 1024u;
var<workgroup> numbers: array<vec2<f32>, 2048>;

fn times(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

fn conjugate(a: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(a.x, -a.y);
}

// a times -i.
fn quarter(a: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(a.y, -a.x);
}

// e^(-i 2 pi k / n) for k < n.
fn root(k: u32, n: u32) -> vec2<f32> {
    return conjugate(unit(k, n));
}

// k k mod n for k < n <= 2^24.
fn square_mod(k: u32, n: u32) -> u32 {
    if (n <= 65536u) {
        return k * k % n;
    }
    let high = k * (k >> 16u) % n;
    let middle = (high * 256u % n + k * ((k >> 8u) & 255u) % n) % n;
    return (middle * 256u % n + k * (k & 255u) % n) % n;
}

// e^(-i pi t t / n) for t < n.
fn chirp(t: u32, n: u32) -> vec2<f32> {
    return root(square_mod(t, 2u * n), 2u * n);
}

fn stored(at: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(scratch[2u * at]), bitcast<f32>(scratch[2u * at + 1u]));
}

fn store(at: u32, v: vec2<f32>) {
    scratch[2u * at] = bitcast<u32>(v.x);
    scratch[2u * at + 1u] = bitcast<u32>(v.y);
}

// Number t of a row, from memory or from the operator's input.
fn taken(row: u32, t: u32) -> vec2<f32> {
    let p = fft_params();
    switch (p.source) {
        // Left by an earlier pass.
        case 0u: {
            return stored(p.reads + row * p.length + t);
        }
        case 1u: {
            return sample(p.row + row, t);
        }
        // Times the chirp, filled up with zeros.
        case 2u: {
            if (t >= p.points) {
                return vec2<f32>(0.0, 0.0);
            }
            return times(sample(p.row + row, t), chirp(t, p.points));
        }
        // Factors that undo the chirp, around 0.
        default: {
            let away = min(t, p.length - t);
            if (away >= p.points) {
                return vec2<f32>(0.0, 0.0);
            }
            return conjugate(chirp(away, p.points));
        }
    }
}

// Stores number k of a row's transform.
fn given(row: u32, k: u32, v: vec2<f32>) {
    let p = fft_params();
    switch (p.drain) {
        case 0u: {
            store(p.writes + row * p.length + k, v);
        }
        case 1u: {
            result(p.row + row, k, v);
        }
        // Times the transform of what undoes the chirp, to be transformed back.
        case 2u: {
            store(p.writes + row * p.length + k, conjugate(times(v, stored(p.undo + k))));
        }
        default: {
            if (k < p.points) {
                result(p.row + row, k, times(conjugate(v) / f32(p.length), chirp(k, p.points)));
            }
        }
    }
}

struct Four {
    a: vec2<f32>,
    b: vec2<f32>,
    c: vec2<f32>,
    d: vec2<f32>,
}

fn four(a: vec2<f32>, b: vec2<f32>, c: vec2<f32>, d: vec2<f32>) -> Four {
    let s = a + c;
    let t = b + d;
    let u = a - c;
    let v = quarter(b - d);
    return Four(s + t, u + v, s - t, u - v);
}

// A number of a butterfly, turned by k of n parts.
fn put(at: u32, v: vec2<f32>, k: u32, n: u32) {
    if (k == 0u) {
        numbers[at] = v;
    } else {
        numbers[at] = times(v, root(k, n));
    }
}

// One butterfly of r points that are `stride` apart; results are `apart` apart, and turned by multiples of `k` of n parts.
fn butterfly(r: u32, at: u32, stride: u32, to: u32, apart: u32, k: u32, n: u32) {
    let a = numbers[at];
    let b = numbers[at + stride];
    switch (r) {
        case 2u: {
            numbers[to] = a + b;
            put(to + apart, a - b, k, n);
        }
        case 3u: {
            let c = numbers[at + 2u * stride];
            let s = b + c;
            let m = a - 0.5 * s;
            let d = quarter(0.8660254037844386 * (b - c));
            numbers[to] = a + s;
            put(to + apart, m + d, k, n);
            put(to + 2u * apart, m - d, 2u * k, n);
        }
        case 4u: {
            let f = four(a, b, numbers[at + 2u * stride], numbers[at + 3u * stride]);
            numbers[to] = f.a;
            put(to + apart, f.b, k, n);
            put(to + 2u * apart, f.c, 2u * k, n);
            put(to + 3u * apart, f.d, 3u * k, n);
        }
        case 5u: {
            let c = numbers[at + 2u * stride];
            let d = numbers[at + 3u * stride];
            let e = numbers[at + 4u * stride];
            let s = b + e;
            let t = c + d;
            let u = b - e;
            let v = c - d;
            let m = a + 0.30901699437494745 * s - 0.8090169943749475 * t;
            let o = a - 0.8090169943749475 * s + 0.30901699437494745 * t;
            let p = quarter(0.9510565162951535 * u + 0.5877852522924731 * v);
            let q = quarter(0.5877852522924731 * u - 0.9510565162951535 * v);
            numbers[to] = a + s + t;
            put(to + apart, m + p, k, n);
            put(to + 2u * apart, o + q, 2u * k, n);
            put(to + 3u * apart, o - q, 3u * k, n);
            put(to + 4u * apart, m - p, 4u * k, n);
        }
        default: {
            let h = 0.7071067811865476;
            let even = four(a, numbers[at + 2u * stride], numbers[at + 4u * stride], numbers[at + 6u * stride]);
            let odd = four(b, numbers[at + 3u * stride], numbers[at + 5u * stride], numbers[at + 7u * stride]);
            let x = times(odd.b, vec2<f32>(h, -h));
            let y = quarter(odd.c);
            let z = times(odd.d, vec2<f32>(-h, -h));
            numbers[to] = even.a + odd.a;
            put(to + apart, even.b + x, k, n);
            put(to + 2u * apart, even.c + y, 2u * k, n);
            put(to + 3u * apart, even.d + z, 3u * k, n);
            put(to + 4u * apart, even.a - odd.a, 4u * k, n);
            put(to + 5u * apart, even.b - x, 5u * k, n);
            put(to + 6u * apart, even.c - y, 6u * k, n);
            put(to + 7u * apart, even.d - z, 7u * k, n);
        }
    }
}

// One pass: a workgroup makes `batch` transforms of `radix` points, of all rows.
@compute @workgroup_size(128)
fn fft_pass(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = block_of(id, blocks);
    if (block >= grid()) {
        return;
    }
    let p = fft_params();
    // Transforms of a row, and of this workgroup.
    let each = p.length / p.radix;
    let first = block * p.batch;
    let count = min(p.batch, p.rows * each - first);
    let total = count * p.radix;
    for (var e = lane; e < total; e += 128u) {
        // Neighbours in memory are read by neighbouring threads.
        var b = e % count;
        var j = e / count;
        if (each == 1u) {
            b = e / p.radix;
            j = e % p.radix;
        }
        let g = first + b;
        numbers[b * p.radix + j] = taken(g / each, g % each + each * j);
    }
    workgroupBarrier();
    var here = 0u;
    var done = 1u;
    for (var code = p.stages; code != 0u; code = code >> 4u) {
        let r = code & 15u;
        let stride = p.radix / r;
        for (var e = lane; e < count * stride; e += 128u) {
            let b = e / stride * p.radix;
            let u = e % stride;
            let turned = u / done * done;
            butterfly(r, here + b + u, stride, HALF - here + b + u - turned + turned * r, done, turned, p.radix);
        }
        here = HALF - here;
        done = done * r;
        workgroupBarrier();
    }
    for (var e = lane; e < total; e += 128u) {
        var b = e % count;
        var k = e / count;
        if (p.before == 1u) {
            b = e / p.radix;
            k = e % p.radix;
        }
        let g = first + b;
        let u = g % each;
        let turned = u / p.before * p.before;
        let v = numbers[here + b * p.radix + k];
        // The transforms of a pass are turned before the next one.
        if (turned == 0u || k == 0u) {
            given(g / each, u - turned + turned * p.radix + p.before * k, v);
        } else {
            given(g / each, u - turned + turned * p.radix + p.before * k, times(v, root(turned * k, p.length)));
        }
    }
}

// Stand-ins for what a generated module defines.

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;

fn sample(row: u32, t: u32) -> vec2<f32> {
    return vec2<f32>(0.0, 0.0);
}

fn result(row: u32, k: u32, v: vec2<f32>) {}

fn unit(k: u32, n: u32) -> vec2<f32> {
    return vec2<f32>(1.0, 0.0);
}

fn word(k: u32) -> u32 {
    return k;
}

fn grid() -> u32 {
    return 1u;
}

fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x;
}
