// Linear attention. Words: 0 steps, 1 query heads, 2 key heads, 3 rows of a state, 4 its columns, 5 scale, 6 decays of a head, 7 is
// beta a number a head, 8 batch.

// ---- common
fn past_state(at: u32) -> f32 {
    return PAST;
}

fn decay(at: u32) -> f32 {
    return DECAY;
}

fn beta(at: u32) -> f32 {
    return BETA;
}

// ---- columns
// One thread a column of a state, which lies in scratch memory as the states do. Steps lo() .. hi().
THREADS columns {
    let rows = m(3u);
    let stride = m(4u);
    let j = t % stride;
    let state = t / stride;
    let h = state % m(2u);
    let b = state / m(2u);
    let column = state * rows * stride + j;
    let group = m(1u) / m(2u);
    if (lo() == 0u) {
        for (var i = 0u; i < rows; i++) {
            scratch[column + i * stride] = bitcast<u32>(past_state(column + i * stride));
        }
    }
    for (var s = lo(); s < hi(); s++) {
        let step = b * m(0u) + s;
        let head = step * m(2u) + h;
        let key = head * rows;
        let decays = head * m(6u);
        var write = x2(head * stride + j);
        var held = 0.0;
        if (GATED || DELTA) {
            for (var i = 0u; i < rows; i++) {
                var x = bitcast<f32>(scratch[column + i * stride]);
                if (GATED) {
                    x = x * decay(decays + select(0u, i, m(6u) != 1u));
                    scratch[column + i * stride] = bitcast<u32>(x);
                }
                held += x * x1(key + i);
            }
        }
        if (DELTA) {
            write = beta(select(step, head, m(7u) == 1u)) * (write - held);
        }
        for (var i = 0u; i < rows; i++) {
            let at = column + i * stride;
            scratch[at] = bitcast<u32>(bitcast<f32>(scratch[at]) + x1(key + i) * write);
        }
        for (var g = 0u; g < group; g++) {
            let own = step * m(1u) + h * group + g;
            var sum = 0.0;
            for (var i = 0u; i < rows; i++) {
                sum += x0(own * rows + i) * bitcast<f32>(scratch[column + i * stride]);
            }
            emit0(own * stride + j, sum * mf(5u));
        }
    }
    if (hi() < m(0u)) {
        return;
    }
    for (var i = 0u; i < rows; i++) {
        let at = column + i * stride;
        emit1(at, bitcast<f32>(scratch[at]));
    }
}
