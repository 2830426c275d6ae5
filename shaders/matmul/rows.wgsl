// Products of few rows: every element of B is read once. Of a workgroup's threads, SHARE sum four columns of the result, of up to four
// rows. A launch sums hi() parts of lo() products each; where there are several, a second one joins what they have found.

struct MatmulParams {
    m: u32,
    n: u32,
    k: u32,
    a_row: u32,
    a_column: u32,
    b_row: u32,
    b_column: u32,
    batch: List,
    a_batch: List,
    b_batch: List,
}

fn matmul_params() -> MatmulParams {
    return MatmulParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
        word(6u),
        List(word(7u), word(8u)),
        List(word(9u), word(10u)),
        List(word(11u), word(12u)),
    );
}

// Threads that have the same columns, and columns of a workgroup.
const SHARE: u32 = select(8u, 32u, ALONG_B);

const COLUMNS: u32 = 256u / SHARE * 4u;

// A launch's workgroups: the part, the columns, and the product of the batch.
struct Strip {
    part: u32,
    j0: u32,
    batch: u32,
    a: u32,
    b: u32,
}

fn strip_of(p: MatmulParams, block: u32) -> Strip {
    let strips = (p.n + COLUMNS - 1u) / COLUMNS;
    let rest = block / hi();
    let batch = rest / strips;
    return Strip(
        block % hi(),
        rest % strips * COLUMNS,
        batch,
        strided(p.batch, p.a_batch, batch),
        strided(p.batch, p.b_batch, batch),
    );
}

// Sums of four columns of four rows.
struct Sums {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
}

// Adds products of one element of each row with four columns.
fn add_across(s: Sums, p: MatmulParams, a: u32, b: vec4<f32>) -> Sums {
    var r = s;
    r.a += x0(a) * b;
    if (p.m > 1u) {
        r.b += x0(a + p.a_row) * b;
    }
    if (p.m > 2u) {
        r.c += x0(a + 2u * p.a_row) * b;
    }
    if (p.m > 3u) {
        r.d += x0(a + 3u * p.a_row) * b;
    }
    return r;
}

// Products of four elements of a row with those of four columns.
fn four_along(a: vec4<f32>, b: mat4x4<f32>) -> vec4<f32> {
    return a * b;
}

fn add_along(s: Sums, p: MatmulParams, a: u32, b: mat4x4<f32>) -> Sums {
    var r = s;
    r.a += four_along(fx0(a, p.a_column), b);
    if (p.m > 1u) {
        r.b += four_along(fx0(a + p.a_row, p.a_column), b);
    }
    if (p.m > 2u) {
        r.c += four_along(fx0(a + 2u * p.a_row, p.a_column), b);
    }
    if (p.m > 3u) {
        r.d += four_along(fx0(a + 3u * p.a_row, p.a_column), b);
    }
    return r;
}

// Sums of a thread: products begin .. end, columns j and on.
fn thread_sums(p: MatmulParams, s: Strip, j: u32, begin: u32, end: u32, share: u32) -> Sums {
    var r = Sums();
    if (j >= p.n || begin >= end) {
        return r;
    }
    let b = s.b + j * p.b_column;
    if (!ALONG_B) {
        for (var k = begin + share; k < end; k += SHARE) {
            r = add_across(r, p, s.a + k * p.a_column, fx1(b + k * p.b_row, p.b_column));
        }
        return r;
    }
    // Columns that are none are those of the last one.
    let more = vec3<u32>(1u, 2u, 3u);
    let c = min(more, vec3<u32>(p.n - 1u - j)) * p.b_column;
    let fours = begin + (end - begin) / 4u * 4u;
    for (var k = begin + share * 4u; k < fours; k += SHARE * 4u) {
        let at = b + k * p.b_row;
        let columns = mat4x4<f32>(
            fx1(at, p.b_row),
            fx1(at + c.x, p.b_row),
            fx1(at + c.y, p.b_row),
            fx1(at + c.z, p.b_row),
        );
        r = add_along(r, p, s.a + k * p.a_column, columns);
    }
    let k = fours + share;
    if (k < end) {
        let at = b + k * p.b_row;
        r = add_across(r, p, s.a + k * p.a_column, vec4<f32>(x1(at), x1(at + c.x), x1(at + c.y), x1(at + c.z)));
    }
    return r;
}

var<workgroup> found: array<vec4<f32>, 256>;

// Stores four columns of a row, or keeps them for the launch that joins parts.
fn finish_columns(p: MatmulParams, s: Strip, i: u32, j: u32, v: vec4<f32>) {
    let at = (s.batch * p.m + i) * p.n + j;
    if (hi() == 1u && j + 4u <= p.n) {
        emit_four0(at, v);
        return;
    }
    for (var c = 0u; c < min(4u, p.n - j); c++) {
        if (hi() == 1u) {
            emit0(at + c, v[c]);
        } else {
            keep((at + c) * hi() + s.part, v[c]);
        }
    }
}

@compute @workgroup_size(256)
fn product_of_rows(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // Written out, as naga takes what functions return for what threads do not share.
    let block = id.y * blocks.x + id.x;
    if (block >= grid()) {
        return;
    }
    let p = matmul_params();
    let s = strip_of(p, block);
    // Threads of the same columns are beside each other along B, else far apart.
    let share = select(lane / (256u / SHARE), lane % SHARE, ALONG_B);
    let quad = select(lane % (256u / SHARE), lane / SHARE, ALONG_B);
    let apart = select(256u / SHARE, 1u, ALONG_B);
    let j = s.j0 + quad * 4u;
    let begin = s.part * lo();
    let sums = thread_sums(p, s, j, begin, min(begin + lo(), p.k), share);
    for (var i = 0u; i < 4u; i++) {
        var own = sums.a;
        if (i == 1u) {
            own = sums.b;
        } else if (i == 2u) {
            own = sums.c;
        } else if (i == 3u) {
            own = sums.d;
        }
        found[lane] = own;
        workgroupBarrier();
        for (var half = SHARE / 2u; half > 0u; half = half / 2u) {
            if (share < half) {
                found[lane] += found[lane + half * apart];
            }
            workgroupBarrier();
        }
        if (share == 0u && i < p.m && j < p.n) {
            finish_columns(p, s, i, j, found[lane]);
        }
        workgroupBarrier();
    }
}

// A thread an element: the sum of its parts.
@compute @workgroup_size(64)
fn join_rows(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    var sum = 0.0;
    for (var k = 0u; k < hi(); k++) {
        sum += kept(t * hi() + k);
    }
    emit0(t, sum);
}

// Stand-ins for what a generated module defines.

const ALONG_B: bool = false;

struct List {
    first: u32,
    count: u32,
}

fn strided(dims: List, strides: List, at: u32) -> u32 {
    return at;
}

fn word(k: u32) -> u32 {
    return k;
}

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}

fn grid() -> u32 {
    return 1u;
}

fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn x1(at: u32) -> f32 {
    return 0.0;
}

fn fx0(at: u32, step: u32) -> vec4<f32> {
    return vec4<f32>();
}

fn fx1(at: u32, step: u32) -> vec4<f32> {
    return vec4<f32>();
}

fn keep(at: u32, v: f32) {
}

fn kept(at: u32) -> f32 {
    return 0.0;
}

fn emit0(at: u32, v: f32) {
}

fn emit_four0(at: u32, v: vec4<f32>) {
}
