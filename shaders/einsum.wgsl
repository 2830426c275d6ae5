// ---- einsum
// Words: rank of the result, dimensions, strides of every input; the same for what is summed. A launch sums over lo() .. hi().
fn total(at: u32) -> ACC {
    let rank = m(0u);
    let inner = 1u + rank * (1u + INPUTSu);
    let depth = m(inner);
    var start: array<u32, INPUTS>;
    var rest = at;
    for (var d = rank; d > 0u; d--) {
        let n = m(d);
        let c = rest % n;
        rest = rest / n;
        for (var k = 0u; k < INPUTSu; k++) {
            start[k] += c * m(rank * (k + 1u) + d);
        }
    }
    var sum = resume(at, ZERO);
    for (var i = lo(); i < hi(); i++) {
        var src = start;
        rest = i;
        for (var d = depth; d > 0u; d--) {
            let n = m(inner + d);
            let c = rest % n;
            rest = rest / n;
            for (var k = 0u; k < INPUTSu; k++) {
                src[k] += c * m(inner + depth * (k + 1u) + d);
            }
        }
        sum += PRODUCT;
    }
    return sum;
}

fn compute0(at: u32) -> ACC {
    return total(at);
}
