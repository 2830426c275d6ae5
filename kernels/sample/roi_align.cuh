// Pooling of regions into bins by samples between elements. HALF moves coordinates by half an element; MEAN takes the mean of a
// bin's samples, the greatest of their parts else.
#pragma once
#include "../prelude/launch.cuh"

struct RoiAlignParams {
    u32 images;
    u32 channels;
    u32 height;
    u32 width;
    u32 rows;
    u32 columns;
    u32 samples;
    f32 scale;
};

struct Bins {
    f32 start;
    f32 size;
    i32 samples;
};

template <class K> DEV Bins bins(const K& k, f32 low, f32 high, u32 n) {
    const auto& p = params<RoiAlignParams>(k);
    const f32 shift = K::HALF ? 0.5f : 0.0f;
    const f32 start = low * p.scale - shift;
    f32 length = high * p.scale - shift - start;
    if (!K::HALF) {
        length = max(length, 1.0f);
    }
    const f32 size = length / f32(n);
    i32 samples = i32(p.samples);
    if (samples <= 0) {
        samples = clamp(f_to_i32(ceil(size)), 0, 1024);
    }
    return Bins{start, size, samples};
}

DEV f32 sample_at(Bins b, u32 bin, i32 i) {
    return b.start + f32(bin) * b.size + (f32(i) + 0.5f) * b.size / f32(b.samples);
}

// The two elements around a coordinate and the weight of the second; the first is -1 outside.
struct Around {
    i32 low;
    i32 high;
    f32 part;
};

DEV Around around(f32 v, u32 size) {
    if (is_nan(v) || v < -1.0f || v > f32(size) || size == 0u) {
        return Around{-1, -1, 0.0f};
    }
    const f32 x = max(v, 0.0f);
    const i32 low = i32(x);
    const i32 last = i32(size) - 1;
    if (low >= last) {
        return Around{last, last, 0.0f};
    }
    return Around{low, low + 1, x - f32(low)};
}

template <class K> DEV f32 roi_align(const K& k, u32 at) {
    const auto& p = params<RoiAlignParams>(k);
    const u32 ox = at % p.columns;
    const u32 oy = at / p.columns % p.rows;
    const u32 c = at / p.columns / p.rows % p.channels;
    const u32 region = at / p.columns / p.rows / p.channels;
    const i32 image = k.near2(region);
    if (image < 0 || image >= i32(p.images)) {
        return 0.0f;
    }
    const Bins rows = bins(k, k.x1(region * 4u + 1u), k.x1(region * 4u + 3u), p.rows);
    const Bins columns = bins(k, k.x1(region * 4u), k.x1(region * 4u + 2u), p.columns);
    const u32 plane = (u32(image) * p.channels + c) * p.height * p.width;
    const i32 width = i32(p.width);
    f32 sum = 0.0f;
    f32 most = cf(0xff800000u);
    for (i32 i = 0; i < rows.samples; i++) {
        const Around v = around(sample_at(rows, oy, i), p.height);
        for (i32 j = 0; j < columns.samples; j++) {
            const Around h = around(sample_at(columns, ox, j), p.width);
            if (v.low < 0 || h.low < 0) {
                most = max(most, 0.0f);
                continue;
            }
            const f32 a = (1.0f - v.part) * (1.0f - h.part) * k.x0(plane + u32(v.low * width + h.low));
            const f32 b = (1.0f - v.part) * h.part * k.x0(plane + u32(v.low * width + h.high));
            const f32 e = v.part * (1.0f - h.part) * k.x0(plane + u32(v.high * width + h.low));
            const f32 f = v.part * h.part * k.x0(plane + u32(v.high * width + h.high));
            sum += a + b + e + f;
            most = max(most, max(max(a, b), max(e, f)));
        }
    }
    const i32 count = rows.samples * columns.samples;
    if (count <= 0) {
        return 0.0f;
    }
    return K::MEAN ? sum / f32(count) : most;
}
