// Sliding windows over up to three spatial dimensions; fewer are led by dimensions of 1. Words 7d..7d+6 for dimension
// d: input, output, kernel, stride, dilation, padding before, padding after. For the transposed ones `input` is the
// result and `output` the operand. Others follow from word 21 on. ACC is the type of sums.

DEV i32 w_in(u32 d) const {
    return mi(d * 7u);
}

DEV i32 w_out(u32 d) const {
    return mi(d * 7u + 1u);
}

DEV i32 w_kernel(u32 d) const {
    return mi(d * 7u + 2u);
}

// The position under tap k of window o.
DEV i32 w_at(u32 d, i32 o, i32 k) const {
    return o * mi(d * 7u + 3u) + k * mi(d * 7u + 4u) - mi(d * 7u + 5u);
}

// The operand element that reaches result element p through tap k; -1 if none does.
DEV i32 w_from(u32 d, i32 p, i32 k) const {
    const auto q = p + mi(d * 7u + 5u) - k * mi(d * 7u + 4u);
    const auto s = mi(d * 7u + 3u);
    if (q < 0 || q % s != 0 || q / s >= w_out(d)) {
        return -1;
    }
    return q / s;
}

DEV bool inside(i32 i, i32 n) const {
    return i >= 0 && i < n;
}

// Three coordinates in a box of these sizes.
DEV vec3<i32> unflatten(u32 at, i32 b, i32 c) const {
    const auto x = i32(at % u32(c));
    const auto rest = at / u32(c);
    return vec3<i32>(i32(rest / u32(b)), i32(rest % u32(b)), x);
}

DEV u32 out_volume() const {
    return u32(w_out(0u) * w_out(1u) * w_out(2u));
}

DEV u32 in_volume() const {
    return u32(w_in(0u) * w_in(1u) * w_in(2u));
}

DEV u32 taps() const {
    return u32(w_kernel(0u) * w_kernel(1u) * w_kernel(2u));
}

// ---- linear
// Where an element of an image lies, from its image, its channel and its place of `volume`; and back.
DEV u32 lie(u32 image, u32 channel, u32 channels, u32 place, u32 volume) const {
    return (image * channels + channel) * volume + place;
}

DEV vec3<u32> parts(u32 at, u32 channels, u32 volume) const {
    return vec3<u32>(at / volume / channels, at / volume % channels, at % volume);
}

// Where the weight of a channel under a tap lies among those of an output channel.
DEV u32 weight_at(u32 channel, u32 channels, u32 tap, u32 taps) const {
    return channel * taps + tap;
}

// ---- channels_last
DEV u32 lie(u32 image, u32 channel, u32 channels, u32 place, u32 volume) const {
    return (image * volume + place) * channels + channel;
}

DEV vec3<u32> parts(u32 at, u32 channels, u32 volume) const {
    return vec3<u32>(at / channels / volume, at % channels, at / channels % volume);
}

DEV u32 weight_at(u32 channel, u32 channels, u32 tap, u32 taps) const {
    return tap * channels + channel;
}

// ---- conv
// Words: channels, output channels, channels of a group, output channels of a group.
DEV ACC compute0(u32 at) const {
    const auto own = parts(at, m(22u), out_volume());
    const auto o = unflatten(own.z, w_out(1u), w_out(2u));
    const auto ch = own.y;
    const auto image = own.x;
    const auto depth = m(23u);
    const auto channels = m(21u);
    const auto volume = in_volume();
    auto sum = BIAS;
    for (u32 c = 0u; c < depth; c++) {
        const auto source = ch / m(24u) * depth + c;
        const auto weights = ch * depth * taps();
        u32 tap = 0u;
        for (i32 kz = 0; kz < w_kernel(0u); kz++) {
            const auto z = w_at(0u, o.x, kz);
            for (i32 ky = 0; ky < w_kernel(1u); ky++) {
                const auto y = w_at(1u, o.y, ky);
                for (i32 kx = 0; kx < w_kernel(2u); kx++) {
                    const auto x = w_at(2u, o.z, kx);
                    if (inside(z, w_in(0u)) && inside(y, w_in(1u)) && inside(x, w_in(2u))) {
                        const auto place = u32((z * w_in(1u) + y) * w_in(2u) + x);
                        const auto w = x1(weights + weight_at(c, depth, tap, taps()));
                        mac(sum, x0(lie(image, source, channels, place, volume)), w);
                    }
                    tap++;
                }
            }
        }
    }
    return sum;
}

// ---- conv_tiled
// The product of the weights of a group [rows, K] and the elements under all windows [K, windows].
__shared__ f32 tile_a[1088];
__shared__ f32 tile_b[1088];

GROUPS tiled 256 {
    const auto rows = m(24u);
    const auto cols = out_volume();
    const auto depth = m(23u) * taps();
    const auto across = (cols + 63u) / 64u;
    const auto down = (rows + 63u) / 64u;
    const auto j0 = (group % across) * 64u;
    const auto i0 = ((group / across) % down) * 64u;
    const auto plane = group / across / down;
    const auto groups = m(22u) / rows;
    const auto part = plane % groups;
    const auto image = plane / groups;
    const auto first = part * m(23u);
    const auto channels = m(21u);
    const auto volume = in_volume();
    const auto weights = part * rows * depth;
    const auto ti = l / 16u;
    const auto tj = l % 16u;
    // The column that this thread loads is always the same one.
    const auto jb = j0 + l % 64u;
    const auto o = unflatten(min(jb, cols - 1u), w_out(1u), w_out(2u));
    f32 sum[4][4] = {};
    for (u32 k0 = 0u; k0 < depth; k0 += 16u) {
        for (u32 q = 0u; q < 4u; q++) {
            const auto e = q * 256u + l;
            const auto ka = k0 + e % 16u;
            const auto ia = i0 + e / 16u;
            f32 va = 0.0f;
            if (ka < depth && ia < rows) {
                va = x1(weights + ia * depth + weight_at(ka / taps(), m(23u), ka % taps(), taps()));
            }
            tile_a[(e % 16u) * 68u + e / 16u] = va;
            const auto kb = k0 + e / 64u;
            f32 vb = 0.0f;
            if (kb < depth && jb < cols) {
                const auto k = unflatten(kb % taps(), w_kernel(1u), w_kernel(2u));
                const auto z = w_at(0u, o.x, k.x);
                const auto y = w_at(1u, o.y, k.y);
                const auto x = w_at(2u, o.z, k.z);
                if (inside(z, w_in(0u)) && inside(y, w_in(1u)) && inside(x, w_in(2u))) {
                    const auto place = u32((z * w_in(1u) + y) * w_in(2u) + x);
                    vb = x0(lie(image, first + kb / taps(), channels, place, volume));
                }
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
                const auto ch = part * rows + i;
                emit0(lie(image, ch, m(22u), j, cols), sum[di][dj] + BIAS);
            }
        }
    }
}

// ---- conv_transpose
// Words: channels, output channels, output channels of a group, channels of a group.
DEV ACC compute0(u32 at) const {
    const auto volume = in_volume();
    const auto own = parts(at, m(22u), volume);
    const auto p = unflatten(own.z, w_in(1u), w_in(2u));
    const auto ch = own.y;
    const auto depth = m(23u);
    const auto channels = m(21u);
    const auto windows = out_volume();
    const auto part = ch / depth;
    auto sum = BIAS;
    for (auto c = part * m(24u); c < (part + 1u) * m(24u); c++) {
        const auto weights = (c * depth + ch % depth) * taps();
        u32 tap = 0u;
        for (i32 kz = 0; kz < w_kernel(0u); kz++) {
            const auto z = w_from(0u, p.x, kz);
            for (i32 ky = 0; ky < w_kernel(1u); ky++) {
                const auto y = w_from(1u, p.y, ky);
                for (i32 kx = 0; kx < w_kernel(2u); kx++) {
                    const auto x = w_from(2u, p.z, kx);
                    if (z >= 0 && y >= 0 && x >= 0) {
                        const auto place = u32((z * w_out(1u) + y) * w_out(2u) + x);
                        mac(sum, x0(lie(own.x, c, channels, place, windows)), x1(weights + tap));
                    }
                    tap++;
                }
            }
        }
    }
    return sum;
}

// ---- col2im
// `input` is the image; x is [N, C, taps, windows].
DEV ACC compute0(u32 at) const {
    const auto volume = in_volume();
    const auto p = unflatten(at % volume, w_in(1u), w_in(2u));
    const auto plane = at / volume * taps();
    ACC sum = ZERO;
    u32 tap = 0u;
    for (i32 kz = 0; kz < w_kernel(0u); kz++) {
        const auto z = w_from(0u, p.x, kz);
        for (i32 ky = 0; ky < w_kernel(1u); ky++) {
            const auto y = w_from(1u, p.y, ky);
            for (i32 kx = 0; kx < w_kernel(2u); kx++) {
                const auto x = w_from(2u, p.z, kx);
                if (z >= 0 && y >= 0 && x >= 0) {
                    sum += x0((plane + tap) * out_volume() + u32((z * w_out(1u) + y) * w_out(2u) + x));
                }
                tap++;
            }
        }
    }
    return sum;
}

// ---- padded
// Taps of window o on elements or padding.
DEV i32 padded_taps(u32 d, i32 o) const {
    const auto room = mi(d * 7u + 5u) + w_in(d) + mi(d * 7u + 6u) - o * mi(d * 7u + 3u);
    const auto step = mi(d * 7u + 4u);
    return min(max((room + step - 1) / step, 0), w_kernel(d));
}

// ---- pool
// Word: channels.
DEV ACC compute0(u32 at) const {
    const auto channels = m(21u);
    const auto volume = in_volume();
    const auto own = parts(at, channels, out_volume());
    const auto o = unflatten(own.z, w_out(1u), w_out(2u));
    ACC acc = START;
    i32 count = 0;
    for (i32 kz = 0; kz < w_kernel(0u); kz++) {
        const auto z = w_at(0u, o.x, kz);
        if (!inside(z, w_in(0u))) {
            continue;
        }
        for (i32 ky = 0; ky < w_kernel(1u); ky++) {
            const auto y = w_at(1u, o.y, ky);
            if (!inside(y, w_in(1u))) {
                continue;
            }
            for (i32 kx = 0; kx < w_kernel(2u); kx++) {
                const auto x = w_at(2u, o.z, kx);
                if (!inside(x, w_in(2u))) {
                    continue;
                }
                const auto place = u32((z * w_in(1u) + y) * w_in(2u) + x);
                const auto v = x0(lie(own.x, own.y, channels, place, volume));
                acc = STEP;
                count++;
            }
        }
    }
    return LAST;
}

// ---- max_pool_indices
// The position of the greatest element in its plane, first of equals; -1 without elements.
DEV i32 greatest(u32 at) const {
    const auto o = unflatten(at % out_volume(), w_out(1u), w_out(2u));
    const auto plane = at / out_volume() * in_volume();
    i32 best = -1;
    for (i32 kz = 0; kz < w_kernel(0u); kz++) {
        const auto z = w_at(0u, o.x, kz);
        for (i32 ky = 0; ky < w_kernel(1u); ky++) {
            const auto y = w_at(1u, o.y, ky);
            for (i32 kx = 0; kx < w_kernel(2u); kx++) {
                const auto x = w_at(2u, o.z, kx);
                if (inside(z, w_in(0u)) && inside(y, w_in(1u)) && inside(x, w_in(2u))) {
                    const auto p = (z * w_in(1u) + y) * w_in(2u) + x;
                    if (best < 0) {
                        best = p;
                    } else {
                        const auto a = x0(plane + u32(p));
                        const auto b = x0(plane + u32(best));
                        if (BETTER) {
                            best = p;
                        }
                    }
                }
            }
        }
    }
    return best;
}

DEV ACC compute0(u32 at) const {
    const auto best = greatest(at);
    if (best < 0) {
        return START;
    }
    return x0(at / out_volume() * in_volume() + u32(best));
}

DEV i64 compute1(u32 at) const {
    const auto best = greatest(at);
    if (best < 0) {
        return i64(-1);
    }
    const auto p = unflatten(u32(best), w_in(1u), w_in(2u));
    const auto by_rows = u32(best);
    const auto by_columns = u32((p.z * w_in(1u) + p.y) * w_in(0u) + p.x);
    return i64(i32(at / out_volume() * in_volume() + ORDER));
}

// ---- max_unpool
// Words: rank, strides of the pooled tensor, its dimensions, those of the result, strides of the result, elements of
// a plane of x.
DEV ACC compute0(u32 at) const {
    return ZERO;
}

THREADS unpool {
    const auto rank = m(0u);
    const auto volume = m(1u + rank * 4u);
    for (u32 k = 0u; k < volume; k++) {
        const auto src = t * volume + k;
        const auto index = x1(src);
        auto ok = index >= i64(0) && index <= i64(2147483647);
        auto rest = u32(i32(index));
        u32 to = 0u;
        for (u32 d = 0u; d < rank; d++) {
            const auto s = max(m(1u + d), 1u);
            const auto i = rest / s;
            rest = rest % s;
            ok = ok && i < m(1u + rank + d) && i < m(1u + rank * 2u + d);
            to += i * m(1u + rank * 3u + d);
        }
        if (ok) {
            emit0(to, x0(src));
        }
    }
}
