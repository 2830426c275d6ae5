// ---- nll_loss

// Words: 0 classes, 1 elements inside, 2 targets in all, 3 use_ignore, 4 ignore_index.
fn class_of(t: u32) -> u32 {
    let c = near1(t);
    let known = c >= 0 && u32(c) < m(0u) && !(m(3u) != 0u && c == mi(4u));
    return select(m(0u), u32(c), known);
}

fn weight_of(c: u32) -> f32 {
    return WEIGHT;
}

fn loss(t: u32) -> f32 {
    let c = class_of(t);
    if (c == m(0u)) {
        return 0.0;
    }
    return -weight_of(c) * x0((t / m(1u) * m(0u) + c) * m(1u) + t % m(1u));
}

// ---- nll_each

fn compute0(at: u32) -> f32 {
    return loss(at);
}

// ---- nll_all

var<workgroup> shared_values: array<vec2<f32>, 64>;

// One workgroup sums targets lo() .. hi(). Scratch: sum, its lost digits and weights of every thread so far.
GROUPS all 64 {
    // Kahan's summation: the sum is as long as the batch.
    var sum = 0.0;
    var rest = 0.0;
    var weights = 0.0;
    if (lo() > 0u) {
        sum = bitcast<f32>(scratch[l * 3u]);
        rest = bitcast<f32>(scratch[l * 3u + 1u]);
        weights = bitcast<f32>(scratch[l * 3u + 2u]);
    }
    for (var t = lo() + l; t < hi(); t += 64u) {
        let y = loss(t) - rest;
        let s = sum + y;
        rest = (s - sum) - y;
        sum = s;
        let c = class_of(t);
        if (c < m(0u)) {
            weights += weight_of(c);
        }
    }
    if (hi() < m(2u)) {
        scratch[l * 3u] = bitcast<u32>(sum);
        scratch[l * 3u + 1u] = bitcast<u32>(rest);
        scratch[l * 3u + 2u] = bitcast<u32>(weights);
        return;
    }
    shared_values[l] = vec2<f32>(sum - rest, weights);
    workgroupBarrier();
    if (l == 0u) {
        var both = vec2<f32>(0.0, 0.0);
        for (var k = 0u; k < 64u; k++) {
            both += shared_values[k];
        }
        sum = both.x;
        weights = both.y;
        emit0(0u, ALL);
    }
}
