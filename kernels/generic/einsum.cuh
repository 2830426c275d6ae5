// ---- einsum
// Words: rank of the result, dimensions, strides of every input; the same for what is summed; its volume.
DEV ACC compute0(u32 at) const {
    const auto rank = m(0u);
    const auto inner = 1u + rank * (1u + INPUTSu);
    const auto depth = m(inner);
    const auto volume = m(inner + 1u + depth * (1u + INPUTSu));
    u32 start[INPUTS] = {};
    auto rest = at;
    for (auto d = rank; d > 0u; d--) {
        const auto n = m(d);
        const auto c = rest % n;
        rest = rest / n;
        for (u32 k = 0u; k < INPUTSu; k++) {
            start[k] += c * m(rank * (k + 1u) + d);
        }
    }
    ACC sum = ZERO;
    for (u32 i = 0u; i < volume; i++) {
        u32 src[INPUTS];
        for (u32 k = 0u; k < INPUTSu; k++) {
            src[k] = start[k];
        }
        rest = i;
        for (auto d = depth; d > 0u; d--) {
            const auto n = m(inner + d);
            const auto c = rest % n;
            rest = rest / n;
            for (u32 k = 0u; k < INPUTSu; k++) {
                src[k] += c * m(inner + depth * (k + 1u) + d);
            }
        }
        sum += PRODUCT;
    }
    return sum;
}
