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
    if (own.inside && own.y == 0u) {
        f32* const found = reinterpret_cast<f32*>(k.scratch);
        const u32 at = (own.image * p.parts + own.part) * p.channels + own.channel;
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            found[(at + j) * 2u] = means[j][l];
            found[(at + j) * 2u + 1u] = squares[j][l];
        }
    }
}

// A block a group: the mean and the factor of a group from those of its channels in all parts.
template <class K> DEV void group_of_columns(const K& k) {
    const auto& p = params<GroupColumnsParams>(k);
    const u32 image = blockIdx.x / p.groups;
    const u32 first = (blockIdx.x - image * p.groups) * p.width;
    f32* const found = reinterpret_cast<f32*>(k.scratch);
    Moments m = no_moments();
    for (u32 i = threadIdx.x; i < p.parts * p.width; i += K::LANES) {
        const u32 part = i / p.width;
        const u32 at = (image * p.parts + part) * p.channels + first + (i - part * p.width);
        m = merged(m, Moments{f32(min(p.part, p.pixels - part * p.part)), found[at * 2u], found[at * 2u + 1u]});
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
template <class K> DEV void apply_to_columns_8(const K& k) { apply_to_columns<8u>(k); }
template <class K> DEV void apply_to_columns_1(const K& k) { apply_to_columns<1u>(k); }
