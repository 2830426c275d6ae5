// Words: m, n, k, row and column strides of A, row and column strides of B, rank of the batch, its dimensions,
// strides of A, strides of B. ACC is the type of the sum, ZERO its zero.

fn batch_offset(batch: u32, which: u32) -> u32 {
    let rank = m(7u);
    var rest = batch;
    var at = 0u;
    for (var d = rank; d > 0u; d--) {
        let n = m(7u + d);
        at += (rest % n) * m(7u + which * rank + d);
        rest = rest / n;
    }
    return at;
}

// ---- naive

fn compute0(at: u32) -> ACC {
    let n = m(1u);
    let j = at % n;
    let i = (at / n) % m(0u);
    let batch = at / n / m(0u);
    var pa = batch_offset(batch, 1u) + i * m(3u);
    var pb = batch_offset(batch, 2u) + j * m(6u);
    var sum = ZERO;
    for (var k = 0u; k < m(2u); k++) {
        sum += x0(pa) * x1(pb);
        pa += m(4u);
        pb += m(5u);
    }
    return sum;
}

// ---- tiled

var<workgroup> tile_a: array<f32, 1088>;
var<workgroup> tile_b: array<f32, 1088>;

@compute @workgroup_size(256)
fn tiled(ENTRY_ARGS) {
    let group = w.y * g.x + w.x;
    if (group >= args[0]) {
        return;
    }
    let rows = m(0u);
    let cols = m(1u);
    let depth = m(2u);
    let across = (cols + 63u) / 64u;
    let down = (rows + 63u) / 64u;
    let j0 = (group % across) * 64u;
    let i0 = ((group / across) % down) * 64u;
    let batch = group / across / down;
    let pa = batch_offset(batch, 1u);
    let pb = batch_offset(batch, 2u);
    let ti = l / 16u;
    let tj = l % 16u;
    var sum: array<vec4<f32>, 4>;
    for (var k0 = 0u; k0 < depth; k0 += 16u) {
        for (var q = 0u; q < 4u; q++) {
            let e = q * 256u + l;
            // Neighbouring threads read neighbouring elements of a row.
            let ka = k0 + e % 16u;
            let ia = i0 + e / 16u;
            var va = 0.0;
            if (ka < depth && ia < rows) {
                va = x0(pa + ia * m(3u) + ka * m(4u));
            }
            tile_a[(e % 16u) * 68u + e / 16u] = va;
            let kb = k0 + e / 64u;
            let jb = j0 + e % 64u;
            var vb = 0.0;
            if (kb < depth && jb < cols) {
                vb = x1(pb + kb * m(5u) + jb * m(6u));
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
                emit0((batch * rows + i) * cols + j, sum[di][dj]);
            }
        }
    }
}
