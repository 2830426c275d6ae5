// Words: m, n, k, row and column strides of A, row and column strides of B, rank of the batch, its dimensions,
// strides of A, strides of B. ACC is the type of the sum, ZERO its zero.

DEV u32 batch_offset(u32 batch, u32 which) const {
    const auto rank = m(7u);
    auto rest = batch;
    u32 at = 0u;
    for (auto d = rank; d > 0u; d--) {
        const auto n = m(7u + d);
        at += (rest % n) * m(7u + which * rank + d);
        rest = rest / n;
    }
    return at;
}

// ---- naive
DEV ACC compute0(u32 at) const {
    const auto n = m(1u);
    const auto j = at % n;
    const auto i = (at / n) % m(0u);
    const auto batch = at / n / m(0u);
    auto pa = batch_offset(batch, 1u) + i * m(3u);
    auto pb = batch_offset(batch, 2u) + j * m(6u);
    ACC sum = ZERO;
    for (u32 k = 0u; k < m(2u); k++) {
        mac(sum, x0(pa), x1(pb));
        pa += m(4u);
        pb += m(5u);
    }
    return sum;
}

// ---- tiled
__shared__ f32 tile_a[1088];
__shared__ f32 tile_b[1088];

GROUPS tiled 256 {
    const auto rows = m(0u);
    const auto cols = m(1u);
    const auto depth = m(2u);
    const auto across = (cols + 63u) / 64u;
    const auto down = (rows + 63u) / 64u;
    const auto j0 = (group % across) * 64u;
    const auto i0 = ((group / across) % down) * 64u;
    const auto batch = group / across / down;
    const auto pa = batch_offset(batch, 1u);
    const auto pb = batch_offset(batch, 2u);
    const auto ti = l / 16u;
    const auto tj = l % 16u;
    f32 sum[4][4] = {};
    for (u32 k0 = 0u; k0 < depth; k0 += 16u) {
        for (u32 q = 0u; q < 4u; q++) {
            const auto e = q * 256u + l;
            // Neighbouring threads read neighbouring elements of a row.
            const auto ka = k0 + e % 16u;
            const auto ia = i0 + e / 16u;
            f32 va = 0.0f;
            if (ka < depth && ia < rows) {
                va = x0(pa + ia * m(3u) + ka * m(4u));
            }
            tile_a[(e % 16u) * 68u + e / 16u] = va;
            const auto kb = k0 + e / 64u;
            const auto jb = j0 + e % 64u;
            f32 vb = 0.0f;
            if (kb < depth && jb < cols) {
                vb = x1(pb + kb * m(5u) + jb * m(6u));
            }
            tile_b[(e / 64u) * 68u + e % 64u] = vb;
        }
        __syncthreads();
        for (u32 k = 0u; k < 16u; k++) {
            const auto a = k * 68u + ti * 4u;
            const auto b = k * 68u + tj * 4u;
            for (u32 di = 0u; di < 4u; di++) {
                for (u32 dj = 0u; dj < 4u; dj++) {
                    mac(sum[di][dj], tile_a[a + di], tile_b[b + dj]);
                }
            }
        }
        __syncthreads();
    }
    for (u32 di = 0u; di < 4u; di++) {
        for (u32 dj = 0u; dj < 4u; dj++) {
            const auto i = i0 + ti * 4u + di;
            const auto j = j0 + tj * 4u + dj;
            if (i < rows && j < cols) {
                emit0((batch * rows + i) * cols + j, sum[di][dj]);
            }
        }
    }
}
