// Pooling of up to three dimensions with channels second: a thread has ROWS results of a column, and reduces each row of elements that
// several of them read once. Kernel, strides and dilations are constants.
#pragma once
#include "../slice/divisor.cuh"
#include "taps.cuh"

struct PoolPlanesParams {
    i32 z_input;
    i32 y_input;
    i32 x_input;
    i32 z_begin;
    i32 y_begin;
    i32 x_begin;
    i32 z_end;
    i32 y_end;
    i32 x_end;
    u32 z_output;
    u32 y_output;
    u32 x_output;
    u32 x_factor;
    u32 x_shift;
    u32 chunks;
    u32 chunks_factor;
    u32 chunks_shift;
    u32 z_factor;
    u32 z_shift;
};

// Taps from position `first` on that lie on elements.
template <u32 TAPS, u32 STEP> DEV i32 taps_inside(i32 first, i32 n) {
    i32 count = 0;
#pragma unroll
    for (u32 i = 0u; i < TAPS; i++) {
        const i32 at = first + i32(i * STEP);
        count += at >= 0 && at < n ? 1 : 0;
    }
    return count;
}

template <class K> DEV void pool_planes(const K& k, u32 t) {
    typedef typename K::Value Value;
    constexpr u32 ROWS = 4u;
    constexpr u32 HIGH = (ROWS - 1u) * K::Y_STRIDE + (K::Y_KERNEL - 1u) * K::Y_DILATION + 1u;
    const auto& p = params<PoolPlanesParams>(k);
    u32 rest = divide(t, Divisor{p.x_output, p.x_factor, p.x_shift});
    const u32 ox = t - rest * p.x_output;
    u32 next = divide(rest, Divisor{p.chunks, p.chunks_factor, p.chunks_shift});
    const u32 oy = (rest - next * p.chunks) * ROWS;
    const u32 plane = divide(next, Divisor{p.z_output, p.z_factor, p.z_shift});
    const u32 oz = next - plane * p.z_output;
    const i32 left = i32(ox * K::X_STRIDE) - p.x_begin;
    const i32 top = i32(oy * K::Y_STRIDE) - p.y_begin;
    const i32 front = i32(oz * K::Z_STRIDE) - p.z_begin;
    Value sums[ROWS];
#pragma unroll
    for (u32 v = 0u; v < ROWS; v++) {
        sums[v] = k.first();
    }
#pragma unroll 1
    for (u32 kz = 0u; kz < K::Z_KERNEL; kz++) {
        const i32 z = front + i32(kz * K::Z_DILATION);
        if (z < 0 || z >= p.z_input) {
            continue;
        }
        const u32 base = (plane * u32(p.z_input) + u32(z)) * u32(p.y_input);
#pragma unroll
        for (u32 r = 0u; r < HIGH; r++) {
            const i32 y = top + i32(r);
            bool read = false;
#pragma unroll
            for (u32 v = 0u; v < ROWS; v++) {
                const u32 up = r - v * K::Y_STRIDE;
                read = read || (r >= v * K::Y_STRIDE && up % K::Y_DILATION == 0u && up / K::Y_DILATION < K::Y_KERNEL);
            }
            if (!read || y < 0 || y >= p.y_input) {
                continue;
            }
            Value row = k.first();
#pragma unroll
            for (u32 kx = 0u; kx < K::X_KERNEL; kx++) {
                const i32 x = left + i32(kx * K::X_DILATION);
                if (x >= 0 && x < p.x_input) {
                    row = k.step(row, k.x0((base + u32(y)) * u32(p.x_input) + u32(x)));
                }
            }
#pragma unroll
            for (u32 v = 0u; v < ROWS; v++) {
                const u32 up = r - v * K::Y_STRIDE;
                if (r >= v * K::Y_STRIDE && up % K::Y_DILATION == 0u && up / K::Y_DILATION < K::Y_KERNEL) {
                    sums[v] = k.merge(sums[v], row);
                }
            }
        }
    }
    const u32 to = ((plane * p.z_output + oz) * p.y_output + oy) * p.x_output + ox;
#pragma unroll
    for (u32 v = 0u; v < ROWS; v++) {
        if (oy + v < p.y_output) {
            i32 count;
            if constexpr (K::PADDED) {
                count = padded_taps(i32(oz), p.z_input, i32(K::Z_KERNEL), i32(K::Z_STRIDE), i32(K::Z_DILATION), p.z_begin, p.z_end)
                    * padded_taps(i32(oy + v), p.y_input, i32(K::Y_KERNEL), i32(K::Y_STRIDE), i32(K::Y_DILATION), p.y_begin, p.y_end)
                    * padded_taps(i32(ox), p.x_input, i32(K::X_KERNEL), i32(K::X_STRIDE), i32(K::X_DILATION), p.x_begin, p.x_end);
            } else {
                count = taps_inside<K::Z_KERNEL, K::Z_DILATION>(front, p.z_input)
                    * taps_inside<K::Y_KERNEL, K::Y_DILATION>(top + i32(v * K::Y_STRIDE), p.y_input)
                    * taps_inside<K::X_KERNEL, K::X_DILATION>(left, p.x_input);
            }
            k.emit0(to + v * p.x_output, k.last(sums[v], count));
        }
    }
}
