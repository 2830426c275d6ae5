// Reductions. Words: number of kept dimensions, these, their strides; the same for the reduced ones; how many
// elements one result has. ACC is the type of the sum.

fn outer_offset(at: u32) -> u32 {
    let rank = m(0u);
    var rest = at;
    var src = 0u;
    for (var d = rank; d > 0u; d--) {
        let n = m(d);
        src += (rest % n) * m(rank + d);
        rest = rest / n;
    }
    return src;
}

fn inner_offset(at: u32) -> u32 {
    let base = 1u + m(0u) * 2u;
    let rank = m(base);
    var rest = at;
    var src = 0u;
    for (var d = rank; d > 0u; d--) {
        let n = m(base + d);
        src += (rest % n) * m(base + rank + d);
        rest = rest / n;
    }
    return src;
}

fn reduced_count() -> u32 {
    let base = 1u + m(0u) * 2u;
    return m(base + 1u + m(base) * 2u);
}

// ---- serial
// Sums elements lo() .. hi().
fn total(at: u32) -> ACC {
    let base = outer_offset(at);
    let top = shift(at);
    var acc = resume(at, START);
    for (var k = lo(); k < hi(); k++) {
        let v = ACC(x0(base + inner_offset(k)));
        acc = STEP;
    }
    return acc;
}

fn compute0(at: u32) -> REG {
    let n = reduced_count();
    let top = shift(at);
    INFINITE
    let acc = total(at);
    return LAST;
}

// ---- no_shift
fn shift(at: u32) -> f32 {
    return 0.0;
}

// ---- shift
// The greatest element of result `at`, found before the sums and kept behind them.
fn shift(at: u32) -> f32 {
    return bitcast<f32>(scratch[m_tops() + at]);
}

fn m_tops() -> u32 {
    let base = 1u + m(0u) * 2u;
    return m(base + 2u + m(base) * 2u);
}

THREADS greatest {
    let base = outer_offset(t);
    var top = cf(0xff800000u);
    if (lo() > 0u) {
        top = shift(t);
    }
    for (var k = lo(); k < hi(); k++) {
        top = kmax(top, f32(x0(base + inner_offset(k))));
    }
    scratch[m_tops() + t] = bitcast<u32>(top);
}

// ---- group
var<workgroup> partial: array<ACC, 64>;

fn tree(l: u32, mine: ACC) -> ACC {
    var acc = mine;
    partial[l] = acc;
    workgroupBarrier();
    for (var s = 32u; s > 0u; s = s / 2u) {
        if (l < s) {
            acc = partial[l];
            let v = partial[l + s];
            partial[l] = MERGE;
        }
        workgroupBarrier();
    }
    return partial[0];
}

// What thread l finds in elements first .. last of a result.
fn lane(at: u32, first: u32, last: u32, l: u32) -> ACC {
    let base = outer_offset(at);
    let top = 0.0;
    var acc = START;
    for (var k = first + l; k < last; k += 64u) {
        let v = ACC(x0(base + inner_offset(k)));
        acc = STEP;
    }
    return acc;
}

GROUPS rows 64 {
    let n = reduced_count();
    let acc = tree(l, lane(group, 0u, n, l));
    if (l == 0u) {
        emit0(group, LAST);
    }
}

// One of hi() parts of a result, of lo() elements.
GROUPS part 64 {
    let first = group % hi() * lo();
    let acc = tree(l, lane(group / hi(), first, min(first + lo(), reduced_count()), l));
    if (l == 0u) {
        keep(group, acc);
    }
}

// All parts of a result.
GROUPS join 64 {
    let n = reduced_count();
    var acc = START;
    for (var k = l; k < hi(); k += 64u) {
        let v = kept(group * hi() + k);
        acc = MERGE;
    }
    acc = tree(l, acc);
    if (l == 0u) {
        emit0(group, LAST);
    }
}
