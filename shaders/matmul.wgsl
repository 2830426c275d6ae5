// Words: m, n, k, row and column strides of A, row and column strides of B, rank of the batch, its dimensions,
// strides of A, strides of B. ACC is the type of the sum, ZERO its zero. A launch sums over lo() .. hi() of k.

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
fn total(at: u32) -> ACC {
    let n = m(1u);
    let j = at % n;
    let i = (at / n) % m(0u);
    let batch = at / n / m(0u);
    var pa = batch_offset(batch, 1u) + i * m(3u) + lo() * m(4u);
    var pb = batch_offset(batch, 2u) + j * m(6u) + lo() * m(5u);
    var sum = resume(at, ZERO);
    for (var k = lo(); k < hi(); k++) {
        sum += x0(pa) * x1(pb);
        pa += m(4u);
        pb += m(5u);
    }
    return sum;
}

fn compute0(at: u32) -> ACC {
    return total(at);
}

// ---- block
// A thread sums a block of rows and columns; all that does not change is read before the loop.
THREADS block {
    let rows = m(0u);
    let cols = m(1u);
    let depth = m(2u);
    let across = (cols + BLOCK_N - 1u) / BLOCK_N;
    let down = (rows + BLOCK_M - 1u) / BLOCK_M;
    let j0 = (t % across) * BLOCK_N;
    let i0 = ((t / across) % down) * BLOCK_M;
    let batch = t / across / down;
    let base_a = batch_offset(batch, 1u);
    let base_b = batch_offset(batch, 2u);
    let base_y = (batch * rows + i0) * cols + j0;
    let row_step = cols;
    let column_step = 1u;
    let row_a = m(3u);
    let column_b = m(6u);
    let next_a = m(4u);
    let next_b = m(5u);
    PREPARE
    ROWS
    COLUMNS
    SUMS
    var at_a = lo() * next_a;
    var at_b = lo() * next_b;
    let last = hi();
    var k = lo();
    while (k < last) {
        let until = min(last, k + RUN);
        FRESH
        for (; k < until; k += DEPTH) {
            LOADS
            PRODUCTS
            at_a += next_a * DEPTH;
            at_b += next_b * DEPTH;
        }
        JOINED
    }
    STORES
}

// ---- packed
// Do rows of A (1) and columns of B (2) lie in whole words?
fn packed() -> u32 {
    return m(8u + m(7u) * 3u);
}

// Elements of a row of A or a column of B as the bytes of a word, `count` of them, then zeros.
fn left(at: u32, next: u32, count: u32, whole: bool) -> u32 {
    if (whole) {
        return w0(at / 4u);
    }
    var w = 0u;
    for (var q = 0u; q < 4u && q < count; q++) {
        w |= (bitcast<u32>(x0(at + q * next)) & 255u) << (q * 8u);
    }
    return w;
}

fn right(at: u32, next: u32, count: u32, whole: bool) -> u32 {
    if (whole) {
        return w1(at / 4u);
    }
    var w = 0u;
    for (var q = 0u; q < 4u && q < count; q++) {
        w |= (bitcast<u32>(x1(at + q * next)) & 255u) << (q * 8u);
    }
    return w;
}

// ---- tiled
// The sum that element (i, j) has before this launch.
fn begin(batch: u32, i: u32, j: u32) -> ACC {
    if (lo() == 0u || i >= m(0u) || j >= m(1u)) {
        return ZERO;
    }
    return resume((batch * m(0u) + i) * m(1u) + j, ZERO);
}

fn finish_sum(batch: u32, i: u32, j: u32, v: ACC) {
    if (i >= m(0u) || j >= m(1u)) {
        return;
    }
    let at = (batch * m(0u) + i) * m(1u) + j;
    if (hi() < m(2u)) {
        keep(at, v);
    } else {
        emit0(at, v);
    }
}

var<workgroup> tile_a: array<vec4<f32>, SIZE_A>;
var<workgroup> tile_b: array<vec4<f32>, SIZE_B>;

// Element e of a tile of A; neighbouring threads read neighbouring elements of a row.
fn load_a(e: u32, k0: u32, i0: u32, base: u32, rows: u32, depth: u32) {
    let k = k0 + e % TILE_K;
    let r = e / TILE_K;
    var v = 0.0;
    if (k < depth && i0 + r < rows) {
        v = x0(base + (i0 + r) * m(3u) + k * m(4u));
    }
    tile_a[(e % TILE_K) * ROW_A + r / 4u][r % 4u] = v;
}

fn load_b(e: u32, k0: u32, j0: u32, base: u32, cols: u32, depth: u32) {
    let k = k0 + e / TILE_N;
    let c = e % TILE_N;
    var v = 0.0;
    if (k < depth && j0 + c < cols) {
        v = x1(base + k * m(5u) + (j0 + c) * m(6u));
    }
    tile_b[(e / TILE_N) * ROW_B + c / 4u][c % 4u] = v;
}

GROUPS tiled THREAD_COUNT {
    let rows = m(0u);
    let cols = m(1u);
    let depth = m(2u);
    let across = (cols + TILE_N - 1u) / TILE_N;
    let down = (rows + TILE_M - 1u) / TILE_M;
    let j0 = (group % across) * TILE_N;
    let i0 = ((group / across) % down) * TILE_M;
    let batch = group / across / down;
    let base_a = batch_offset(batch, 1u);
    let base_b = batch_offset(batch, 2u);
    let ti = l / ACROSS;
    let tj = l % ACROSS;
    let i = i0 + ti * THREAD_M;
    let j = j0 + tj * THREAD_N;
    SUMS
    for (var k0 = lo(); k0 < hi(); k0 += TILE_K) {
        LOADS
        workgroupBarrier();
        PRODUCTS
        workgroupBarrier();
    }
    STORES
}
