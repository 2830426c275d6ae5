// Sliding windows over up to three spatial dimensions; fewer are led by dimensions of 1. Words 7d..7d+6 for dimension
// d: input, output, kernel, stride, dilation, padding before, padding after. For the transposed ones `input` is the
// result and `output` the operand. Others follow from word 21 on. ACC is the type of sums.

fn w_in(d: u32) -> i32 {
    return mi(d * 7u);
}

fn w_out(d: u32) -> i32 {
    return mi(d * 7u + 1u);
}

fn w_kernel(d: u32) -> i32 {
    return mi(d * 7u + 2u);
}

// The position under tap k of window o.
fn w_at(d: u32, o: i32, k: i32) -> i32 {
    return o * mi(d * 7u + 3u) + k * mi(d * 7u + 4u) - mi(d * 7u + 5u);
}

// The operand element that reaches result element p through tap k; -1 if none does.
fn w_from(d: u32, p: i32, k: i32) -> i32 {
    let q = p + mi(d * 7u + 5u) - k * mi(d * 7u + 4u);
    let s = mi(d * 7u + 3u);
    if (q < 0 || q % s != 0 || q / s >= w_out(d)) {
        return -1;
    }
    return q / s;
}

fn inside(i: i32, n: i32) -> bool {
    return i >= 0 && i < n;
}

// Three coordinates in a box of these sizes.
fn unflatten(at: u32, b: i32, c: i32) -> vec3<i32> {
    let x = i32(at % u32(c));
    let rest = at / u32(c);
    return vec3<i32>(i32(rest / u32(b)), i32(rest % u32(b)), x);
}

fn out_volume() -> u32 {
    return u32(w_out(0u) * w_out(1u) * w_out(2u));
}

fn in_volume() -> u32 {
    return u32(w_in(0u) * w_in(1u) * w_in(2u));
}

fn taps() -> u32 {
    return u32(w_kernel(0u) * w_kernel(1u) * w_kernel(2u));
}

// ---- conv
// Words: channels, output channels, channels of a group, output channels of a group.
fn compute0(at: u32) -> ACC {
    let o = unflatten(at % out_volume(), w_out(1u), w_out(2u));
    let ch = (at / out_volume()) % m(22u);
    let image = at / out_volume() / m(22u);
    let depth = m(23u);
    var sum = BIAS;
    for (var c = 0u; c < depth; c++) {
        let plane = (image * m(21u) + ch / m(24u) * depth + c) * in_volume();
        let weights = (ch * depth + c) * taps();
        var tap = 0u;
        for (var kz = 0; kz < w_kernel(0u); kz++) {
            let z = w_at(0u, o.x, kz);
            for (var ky = 0; ky < w_kernel(1u); ky++) {
                let y = w_at(1u, o.y, ky);
                for (var kx = 0; kx < w_kernel(2u); kx++) {
                    let x = w_at(2u, o.z, kx);
                    if (inside(z, w_in(0u)) && inside(y, w_in(1u)) && inside(x, w_in(2u))) {
                        sum += x0(plane + u32((z * w_in(1u) + y) * w_in(2u) + x)) * x1(weights + tap);
                    }
                    tap++;
                }
            }
        }
    }
    return sum;
}

// ---- conv_tiled
// The product of the weights of a group [rows, K] and the elements under all windows [K, windows].
var<workgroup> tile_a: array<f32, 1088>;
var<workgroup> tile_b: array<f32, 1088>;

GROUPS tiled 256 {
    let rows = m(24u);
    let cols = out_volume();
    let depth = m(23u) * taps();
    let across = (cols + 63u) / 64u;
    let down = (rows + 63u) / 64u;
    let j0 = (group % across) * 64u;
    let i0 = ((group / across) % down) * 64u;
    let plane = group / across / down;
    let groups = m(22u) / rows;
    let part = plane % groups;
    let image = plane / groups;
    let first = (image * m(21u) + part * m(23u)) * in_volume();
    let weights = part * rows * depth;
    let ti = l / 16u;
    let tj = l % 16u;
    // The column that this thread loads is always the same one.
    let jb = j0 + l % 64u;
    let o = unflatten(min(jb, cols - 1u), w_out(1u), w_out(2u));
    var sum: array<vec4<f32>, 4>;
    for (var k0 = 0u; k0 < depth; k0 += 16u) {
        for (var q = 0u; q < 4u; q++) {
            let e = q * 256u + l;
            let ka = k0 + e % 16u;
            let ia = i0 + e / 16u;
            var va = 0.0;
            if (ka < depth && ia < rows) {
                va = x1(weights + ia * depth + ka);
            }
            tile_a[(e % 16u) * 68u + e / 16u] = va;
            let kb = k0 + e / 64u;
            var vb = 0.0;
            if (kb < depth && jb < cols) {
                let k = unflatten(kb % taps(), w_kernel(1u), w_kernel(2u));
                let z = w_at(0u, o.x, k.x);
                let y = w_at(1u, o.y, k.y);
                let x = w_at(2u, o.z, k.z);
                if (inside(z, w_in(0u)) && inside(y, w_in(1u)) && inside(x, w_in(2u))) {
                    vb = x0(first + kb / taps() * in_volume() + u32((z * w_in(1u) + y) * w_in(2u) + x));
                }
            }
            tile_b[(e / 64u) * 68u + e % 64u] = vb;
        }
        workgroupBarrier();
        for (var k = 0u; k < 16u; k++) {
            let b = k * 68u + tj * 4u;
            let vb = vec4<f32>(tile_b[b], tile_b[b + 1u], tile_b[b + 2u], tile_b[b + 3u]);
            let a = k * 68u + ti * 4u;
            sum[0] += tile_a[a] * vb;
            sum[1] += tile_a[a + 1u] * vb;
            sum[2] += tile_a[a + 2u] * vb;
            sum[3] += tile_a[a + 3u] * vb;
        }
        workgroupBarrier();
    }
    for (var di = 0u; di < 4u; di++) {
        for (var dj = 0u; dj < 4u; dj++) {
            let i = i0 + ti * 4u + di;
            let j = j0 + tj * 4u + dj;
            if (i < rows && j < cols) {
                let ch = part * rows + i;
                emit0((image * m(22u) + ch) * cols + j, sum[di][dj] + BIAS);
            }
        }
    }
}

// ---- conv_transpose
// Words: channels, output channels, output channels of a group, channels of a group.
fn compute0(at: u32) -> ACC {
    let volume = in_volume();
    let p = unflatten(at % volume, w_in(1u), w_in(2u));
    let ch = (at / volume) % m(22u);
    let image = at / volume / m(22u);
    let depth = m(23u);
    let part = ch / depth;
    var sum = BIAS;
    for (var c = part * m(24u); c < (part + 1u) * m(24u); c++) {
        let plane = (image * m(21u) + c) * out_volume();
        let weights = (c * depth + ch % depth) * taps();
        var tap = 0u;
        for (var kz = 0; kz < w_kernel(0u); kz++) {
            let z = w_from(0u, p.x, kz);
            for (var ky = 0; ky < w_kernel(1u); ky++) {
                let y = w_from(1u, p.y, ky);
                for (var kx = 0; kx < w_kernel(2u); kx++) {
                    let x = w_from(2u, p.z, kx);
                    if (z >= 0 && y >= 0 && x >= 0) {
                        sum += x0(plane + u32((z * w_out(1u) + y) * w_out(2u) + x)) * x1(weights + tap);
                    }
                    tap++;
                }
            }
        }
    }
    return sum;
}

// ---- col2im
// `input` is the image; x is [N, C, taps, windows].
fn compute0(at: u32) -> ACC {
    let volume = in_volume();
    let p = unflatten(at % volume, w_in(1u), w_in(2u));
    let plane = at / volume * taps();
    var sum = ZERO;
    var tap = 0u;
    for (var kz = 0; kz < w_kernel(0u); kz++) {
        let z = w_from(0u, p.x, kz);
        for (var ky = 0; ky < w_kernel(1u); ky++) {
            let y = w_from(1u, p.y, ky);
            for (var kx = 0; kx < w_kernel(2u); kx++) {
                let x = w_from(2u, p.z, kx);
                if (z >= 0 && y >= 0 && x >= 0) {
                    sum += x0((plane + tap) * out_volume() + u32((z * w_out(1u) + y) * w_out(2u) + x));
                }
                tap++;
            }
        }
    }
    return sum;
}

// ---- padded
// Taps of window o on elements or padding.
fn padded_taps(d: u32, o: i32) -> i32 {
    let room = mi(d * 7u + 5u) + w_in(d) + mi(d * 7u + 6u) - o * mi(d * 7u + 3u);
    let step = mi(d * 7u + 4u);
    return min(max((room + step - 1) / step, 0), w_kernel(d));
}

// ---- pool
fn compute0(at: u32) -> ACC {
    let o = unflatten(at % out_volume(), w_out(1u), w_out(2u));
    let plane = at / out_volume() * in_volume();
    var acc = START;
    var count = 0;
    for (var kz = 0; kz < w_kernel(0u); kz++) {
        let z = w_at(0u, o.x, kz);
        if (!inside(z, w_in(0u))) {
            continue;
        }
        for (var ky = 0; ky < w_kernel(1u); ky++) {
            let y = w_at(1u, o.y, ky);
            if (!inside(y, w_in(1u))) {
                continue;
            }
            for (var kx = 0; kx < w_kernel(2u); kx++) {
                let x = w_at(2u, o.z, kx);
                if (!inside(x, w_in(2u))) {
                    continue;
                }
                let v = x0(plane + u32((z * w_in(1u) + y) * w_in(2u) + x));
                acc = STEP;
                count++;
            }
        }
    }
    return LAST;
}

// ---- max_pool_indices
// The position of the greatest element in its plane, first of equals; -1 without elements.
fn greatest(at: u32) -> i32 {
    let o = unflatten(at % out_volume(), w_out(1u), w_out(2u));
    let plane = at / out_volume() * in_volume();
    var best = -1;
    for (var kz = 0; kz < w_kernel(0u); kz++) {
        let z = w_at(0u, o.x, kz);
        for (var ky = 0; ky < w_kernel(1u); ky++) {
            let y = w_at(1u, o.y, ky);
            for (var kx = 0; kx < w_kernel(2u); kx++) {
                let x = w_at(2u, o.z, kx);
                if (inside(z, w_in(0u)) && inside(y, w_in(1u)) && inside(x, w_in(2u))) {
                    let p = (z * w_in(1u) + y) * w_in(2u) + x;
                    if (best < 0) {
                        best = p;
                    } else {
                        let a = x0(plane + u32(p));
                        let b = x0(plane + u32(best));
                        if (BETTER) {
                            best = p;
                        }
                    }
                }
            }
        }
    }
    return best;
}

fn compute0(at: u32) -> ACC {
    let best = greatest(at);
    if (best < 0) {
        return START;
    }
    return x0(at / out_volume() * in_volume() + u32(best));
}

fn compute1(at: u32) -> i64 {
    let best = greatest(at);
    if (best < 0) {
        return -1li;
    }
    let p = unflatten(u32(best), w_in(1u), w_in(2u));
    let by_rows = u32(best);
    let by_columns = u32((p.z * w_in(1u) + p.y) * w_in(0u) + p.x);
    return i64(i32(at / out_volume() * in_volume() + ORDER));
}

// ---- max_unpool
// Words: rank, strides of the pooled tensor, its dimensions, those of the result, strides of the result, elements of
// a plane of x.
fn compute0(at: u32) -> ACC {
    return ZERO;
}

THREADS unpool {
    let rank = m(0u);
    let volume = m(1u + rank * 4u);
    for (var k = 0u; k < volume; k++) {
        let src = t * volume + k;
        let index = x1(src);
        var ok = index >= 0li && index <= 2147483647li;
        var rest = u32(i32(index));
        var to = 0u;
        for (var d = 0u; d < rank; d++) {
            let s = max(m(1u + d), 1u);
            let i = rest / s;
            rest = rest % s;
            ok = ok && i < m(1u + rank + d) && i < m(1u + rank * 2u + d);
            to += i * m(1u + rank * 3u + d);
        }
        if (ok) {
            emit0(to, x0(src));
        }
    }
}
