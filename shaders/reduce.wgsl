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
fn compute0(at: u32) -> REG {
    let base = outer_offset(at);
    let n = reduced_count();
    var top = 0.0;
    SHIFT
    var acc = START;
    for (var k = 0u; k < n; k++) {
        let v = ACC(x0(base + inner_offset(k)));
        acc = STEP;
    }
    return LAST;
}

// ---- shift
    top = cf(0xff800000u);
    for (var k = 0u; k < n; k++) {
        top = fmax(top, f32(x0(base + inner_offset(k))));
    }
    if (is_nan(top) || is_inf(top)) {
        return INFINITE;
    }

// ---- group
var<workgroup> partial: array<ACC, 64>;

GROUPS rows 64 {
    let base = outer_offset(group);
    let n = reduced_count();
    let top = 0.0;
    var acc = START;
    for (var k = l; k < n; k += 64u) {
        let v = ACC(x0(base + inner_offset(k)));
        acc = STEP;
    }
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
    if (l == 0u) {
        acc = partial[0];
        emit0(group, LAST);
    }
}
