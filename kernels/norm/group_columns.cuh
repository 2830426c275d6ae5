// Normalization of groups of channels where channels are last: statistics of channels over parts of an image's pixels, of groups, and
// their application. A thread has V neighbouring channels of some pixels.
#pragma once
#include "moments.cuh"

struct GroupColumnsParams {
    u32 pixels;
    u32 channels;
    f32 epsilon;
    u32 groups;
    u32 width;
    u32 columns;
    u32 side;
    u32 wide;
    u32 high;
    u32 parts;
    u32 part;
    u32 pieces;
    u32 places;
};

// Place of a thread: image, part, first channel, pixels.
template <u32 V, class K> struct Columns {
    u32 x, y, image, part, channel, pixel, end;
    bool inside;

    DEV explicit Columns(const K& k) {
        const auto& p = params<GroupColumnsParams>(k);
        y = threadIdx.x / p.wide;
        x = threadIdx.x - y * p.wide;
        const u32 rest = blockIdx.x / p.side;
        const u32 column = (blockIdx.x - rest * p.side) * p.wide + x;
        image = rest / p.parts;
        part = rest - image * p.parts;
        channel = column * V;
        inside = y < p.high && column < p.columns;
        pixel = part * p.part + y;
        end = min(p.pixels, (part + 1u) * p.part);
    }
    DEV u32 at(const GroupColumnsParams& p, u32 pixel) const {
        return (image * p.pixels + pixel) * p.channels + channel;
    }
};

template <u32 V, class K> DEV void columns_of_image(const K& k) {
    constexpr u32 U = 4u;
    __shared__ f32 means[V][K::LANES];
    __shared__ f32 squares[V][K::LANES];
    __shared__ f32 counts[K::LANES];
    const auto& p = params<GroupColumnsParams>(k);
    const Columns<V, K> own(k);
    f32 n = 0.0f, mean[V], square[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        mean[j] = 0.0f;
        square[j] = 0.0f;
    }
    if (own.inside) {
        u32 i = own.pixel;
        for (; i + (U - 1u) * p.high < own.end; i += U * p.high) {
            f32 v[U][V];
#pragma unroll
            for (u32 u = 0u; u < U; u++) {
                load_vector<V>(k, own.at(p, i + u * p.high), v[u]);
            }
            const f32 part = share(n, f32(U));
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                f32 lane[U];
#pragma unroll
                for (u32 u = 0u; u < U; u++) {
                    lane[u] = v[u][j];
                }
                const Moments m = moments(lane);
                add_moments(n, mean[j], square[j], part, m.mean, m.squares);
            }
            n = n + f32(U);
        }
        for (; i < own.end; i += p.high) {
            f32 v[V];
            load_vector<V>(k, own.at(p, i), v);
            const f32 part = share(n, 1.0f);
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                add_moments(n, mean[j], square[j], part, v[j], 0.0f);
            }
            n = n + 1.0f;
        }
    }
    const u32 l = threadIdx.x;
    counts[l] = n;
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        means[j][l] = mean[j];
        squares[j][l] = square[j];
    }
    __syncthreads();
    u32 h = 1u;
    while (h < p.high) {
        h *= 2u;
    }
    for (h /= 2u; h > 0u; h /= 2u) {
        if (own.y < h && own.y + h < p.high) {
            const u32 other = l + h * p.wide;
            const f32 part = share(counts[l], counts[other]);
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                add_moments(counts[l], means[j][l], squares[j][l], part, means[j][other], squares[j][other]);
            }
            counts[l] = counts[l] + counts[other];
        }
        __syncthreads();
    }
    // The channels of this block in each group are one piece: a warp merges it.
    const u32 first = blockIdx.x % p.side * p.wide * V;
    const u32 last = min(p.channels, first + p.wide * V);
    f32* const found = reinterpret_cast<f32*>(k.scratch) + blockIdx.x * p.pieces * 2u;
    for (u32 group = first / p.width + l / 32u; group * p.width < last; group += K::LANES / 32u) {
        const u32 to = min(last, (group + 1u) * p.width);
        Moments m = no_moments();
        for (u32 c = max(first, group * p.width) + l % 32u; c < to; c += 32u) {
            const u32 at = (c - first) / V;
            m = merged(m, Moments{counts[at], means[(c - first) % V][at], squares[(c - first) % V][at]});
        }
        m = warp_moments(m);
        if (l % 32u == 0u) {
            const u32 piece = group - first / p.width;
            found[piece * 2u] = m.mean;
            found[piece * 2u + 1u] = m.squares;
        }
    }
}

// A block a group: the mean and the factor of a group from its pieces in all parts.
template <u32 V, class K> DEV void group_of_columns(const K& k) {
    const auto& p = params<GroupColumnsParams>(k);
    const u32 image = blockIdx.x / p.groups;
    const u32 group = blockIdx.x - image * p.groups;
    const u32 from = group * p.width, to = from + p.width;
    // Channels of a block, and the blocks beside each other that have some of this group.
    const u32 block = p.wide * V;
    const u32 side = from / block;
    const u32 sides = (to - 1u) / block - side + 1u;
    f32* const found = reinterpret_cast<f32*>(k.scratch);
    Moments m = no_moments();
    for (u32 i = threadIdx.x; i < p.parts * sides; i += K::LANES) {
        const u32 part = i / sides;
        const u32 s = side + i - part * sides;
        const u32 first = s * block;
        const u32 channels = min(to, min(first + block, p.channels)) - max(from, first);
        const u32 at = ((image * p.parts + part) * p.side + s) * p.pieces + group - first / p.width;
        const f32 n = f32(min(p.part, p.pixels - part * p.part)) * f32(channels);
        m = merged(m, Moments{n, found[at * 2u], found[at * 2u + 1u]});
    }
    m = block_moments(k, m);
    if (threadIdx.x == 0u) {
        const f32 count = f32(p.pixels) * f32(p.width);
        found[p.places + blockIdx.x * 2u] = m.mean;
        found[p.places + blockIdx.x * 2u + 1u] = 1.0f / sqrtf(m.squares / count + p.epsilon);
    }
}

template <u32 V, class K> DEV void apply_to_columns(const K& k) {
    constexpr u32 U = 2u;
    const auto& p = params<GroupColumnsParams>(k);
    const Columns<V, K> own(k);
    if (!own.inside) {
        return;
    }
    const f32* const found = reinterpret_cast<const f32*>(k.scratch) + p.places;
    f32 mean[V], scale[V], bias[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        const u32 c = own.channel + j;
        const u32 group = own.image * p.groups + c / p.width;
        mean[j] = found[group * 2u];
        scale[j] = k.x1(c) * found[group * 2u + 1u];
        bias[j] = k.x2(c);
    }
    for (u32 i = own.pixel; i < own.end; i += U * p.high) {
        f32 v[U][V];
#pragma unroll
        for (u32 u = 0u; u < U; u++) {
            if (i + u * p.high < own.end) {
                load_vector<V>(k, own.at(p, i + u * p.high), v[u]);
            }
        }
#pragma unroll
        for (u32 u = 0u; u < U; u++) {
            if (i + u * p.high < own.end) {
                const u32 at = own.at(p, i + u * p.high);
#pragma unroll
                for (u32 j = 0u; j < V; j++) {
                    v[u][j] = __fmaf_rn(v[u][j] - mean[j], scale[j], bias[j]);
                }
                if constexpr (V == 1u) {
                    k.emit0(at, v[u][0]);
                } else {
                    k.emit0_run(at, v[u]);
                }
            }
        }
    }
}

template <class K> DEV void columns_of_image_8(const K& k) { columns_of_image<8u>(k); }
template <class K> DEV void columns_of_image_1(const K& k) { columns_of_image<1u>(k); }
template <class K> DEV void group_of_columns_8(const K& k) { group_of_columns<8u>(k); }
template <class K> DEV void group_of_columns_1(const K& k) { group_of_columns<1u>(k); }
template <class K> DEV void apply_to_columns_8(const K& k) { apply_to_columns<8u>(k); }
template <class K> DEV void apply_to_columns_1(const K& k) { apply_to_columns<1u>(k); }
