// Convolutions with few channels a group, images with channels first: a block has some rows of windows of several planes. A thread has
// eight neighbouring windows and OUT output channels of a group. Lines of the image, one channel at a time, and the weights of
// its taps are kept in shared memory as f32. STEP, APART and TAPS_X are stride, dilation and taps along a line.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/storage.cuh"
#include "../slice/divisor.cuh"

struct GroupedPlanesParams {
    u32 depth;
    u32 height;
    u32 width;
    u32 out_depth;
    u32 out_height;
    u32 out_width;
    u32 channels;
    u32 outputs;
    u32 group_channels;
    u32 group_outputs;
    u32 taps_z;
    u32 taps_y;
    i32 stride_z;
    i32 stride_y;
    i32 dilation_z;
    i32 dilation_y;
    i32 pad_z;
    i32 pad_y;
    i32 pad_x;
    u32 planes;
    u32 slots;
    u32 rows;
    u32 columns;
    u32 beside;
    u32 below;
    u32 at_once;
    u32 line_step;
    u32 lines;
    u32 pitch;
    u32 units;
    u32 units_factor;
    u32 units_shift;
    u32 lines_factor;
    u32 lines_shift;
};

template <class K> struct GroupedPlanes {
    static constexpr u32 RUN = 8u;
    // Elements of a line from one thread to the next; behind so many there is a word that keeps threads in different banks.
    static constexpr u32 SEGMENT = RUN * K::STEP;
    // Taps of a part of a line: a whole number of segments, or all.
    static constexpr u32 TILE = K::PART < K::TAPS_X ? K::PART : K::TAPS_X;
    static constexpr u32 SPAN = (RUN - 1u) * K::STEP + (TILE - 1u) * K::APART + 1u;
    // Whether the elements under a part stay in registers.
    static constexpr bool HELD = SPAN <= 48u;
    static constexpr u32 SLAB = 6144u;
    static constexpr u32 WEIGHTS = 1536u;

    // Place of element i of a line.
    DEV static constexpr u32 place(u32 i) { return i + i / SEGMENT; }

    // Adds the taps of a line of the kernel.
    DEV static void line_of_taps(const f32* line, const f32* w, f32 (&sums)[K::OUT][RUN]) {
#pragma unroll 1
        for (u32 first = 0u; first < K::TAPS_X; first += TILE) {
            f32 x[HELD ? SPAN : 1u];
            if constexpr (HELD) {
#pragma unroll
                for (u32 s = 0u; s < SPAN; s++) {
                    x[s] = line[place(s)];
                }
            }
#pragma unroll
            for (u32 t = 0u; t < TILE; t++) {
                if (K::TAPS_X % TILE == 0u || first + t < K::TAPS_X) {
                    f32 under[RUN];
#pragma unroll
                    for (u32 r = 0u; r < RUN; r++) {
                        const u32 at = r * K::STEP + t * K::APART;
                        under[r] = HELD ? x[HELD ? at : 0u] : line[place(at)];
                    }
#pragma unroll
                    for (u32 j = 0u; j < K::OUT; j++) {
                        const f32 by = w[(first + t) * K::OUT + j];
#pragma unroll
                        for (u32 r = 0u; r < RUN; r++) {
                            mac(sums[j][r], under[r], by);
                        }
                    }
                }
            }
            line += TILE * K::APART / SEGMENT * (SEGMENT + 1u);
        }
    }
};

// The lines of channel `c` of the group under a block's windows, from line `y` on at tap `z`; `x` is the first column.
template <class K>
DEV void read_lines(const K& k, const GroupedPlanesParams& p, f32* slab, u32 first_plane, u32 slots, u32 c, i32 z, i32 y, i32 x, i32 step) {
    typedef GroupedPlanes<K> Of;
    const Divisor units{p.units, p.units_factor, p.units_shift};
    const Divisor lines{p.lines, p.lines_factor, p.lines_shift};
    const u32 parts = p.group_outputs / K::OUT;
    // Vectors start where those of memory do.
    const i32 shift = x & 7;
    const u32 total = slots * p.lines * p.units;
    for (u32 t = threadIdx.x; t < total; t += K::LANES) {
        const u32 line = divide(t, units);
        const u32 slot = divide(line, lines);
        const u32 row = line - slot * p.lines;
        const i32 first = x - shift + i32(t - line * p.units) * 8;
        const u32 plane = first_plane + slot;
        const u32 groups = p.outputs / p.group_outputs;
        const u32 group = plane / parts % groups;
        const u32 image = plane / parts / groups;
        const i32 at_y = y + i32(row) * step;
        const bool inside = u32(z) < p.depth && u32(at_y) < p.height;
        const u32 channel = image * p.channels + group * p.group_channels + c;
        const typename K::Cell* from = k.bx0 + u64((channel * p.depth + u32(inside ? z : 0)) * p.height + u32(inside ? at_y : 0)) * p.width;
        f32 v[8];
        if (inside && first >= 0 && first + 8 <= i32(p.width)) {
            const auto r = Run<typename K::Cell>::of(from + first, 1u);
#pragma unroll
            for (u32 i = 0u; i < 8u; i++) {
                v[i] = f32(k.wide(r.v[i]));
            }
        } else {
#pragma unroll
            for (u32 i = 0u; i < 8u; i++) {
                const u32 at = u32(first + i32(i));
                v[i] = inside && at < p.width ? f32(k.wide(from[at])) : 0.0f;
            }
        }
        f32* const to = slab + line * p.pitch;
#pragma unroll
        for (u32 i = 0u; i < 8u; i++) {
            const u32 at = u32(first + i32(i) - x);
            if (Of::place(at) < p.pitch) {
                to[Of::place(at)] = v[i];
            }
        }
    }
}

template <class K> DEV void grouped_planes(const K& k) {
    typedef GroupedPlanes<K> Of;
    __shared__ f32 slab[Of::SLAB];
    __shared__ f32 weights[Of::WEIGHTS];
    const auto& p = params<GroupedPlanesParams>(k);
    const u32 parts = p.group_outputs / K::OUT;
    u32 rest = blockIdx.x;
    const u32 ox = rest % p.beside * p.columns * Of::RUN;
    rest /= p.beside;
    const u32 oy = rest % p.below * p.rows;
    rest /= p.below;
    const u32 oz = rest % p.out_depth;
    const u32 first = rest / p.out_depth * p.slots;
    const u32 slots = ::min(p.slots, p.planes - first);
    const u32 column = threadIdx.x % p.columns;
    const u32 row = threadIdx.x / p.columns % p.rows;
    const u32 slot = threadIdx.x / p.columns / p.rows;
    const u32 plane = first + slot;
    const bool own = slot < slots;
    // Output channel of the thread's first sums, and the image.
    const u32 groups = p.outputs / p.group_outputs;
    const u32 to = plane / parts % groups * p.group_outputs + plane % parts * K::OUT;
    const u32 image = plane / parts / groups;
    f32 sums[K::OUT][Of::RUN];
#pragma unroll
    for (u32 j = 0u; j < K::OUT; j++) {
        const f32 start = own ? k.bias(to + j) : 0.0f;
#pragma unroll
        for (u32 r = 0u; r < Of::RUN; r++) {
            sums[j][r] = start;
        }
    }
    const i32 x = i32(ox * K::STEP) - p.pad_x;
    const u32 line_of_row = u32(p.stride_y) / p.line_step;
    for (u32 c = 0u; c < p.group_channels; c++) {
        for (u32 kz = 0u; kz < p.taps_z; kz++) {
            const i32 z = i32(oz) * p.stride_z - p.pad_z + i32(kz) * p.dilation_z;
            for (u32 ky = 0u; ky < p.taps_y; ky += p.at_once) {
                const i32 y = i32(oy) * p.stride_y - p.pad_y + i32(ky) * p.dilation_y;
                __syncthreads();
                read_lines(k, p, slab, first, slots, c, z, y, x, i32(p.line_step));
                const u32 taps = p.at_once * K::TAPS_X;
                for (u32 i = threadIdx.x; i < slots * taps * K::OUT; i += K::LANES) {
                    const u32 s = i / (taps * K::OUT);
                    const u32 q = first + s;
                    const u32 out = q / parts % groups * p.group_outputs + q % parts * K::OUT + i % K::OUT;
                    const u32 tap = (kz * p.taps_y + ky) * K::TAPS_X + i / K::OUT % taps;
                    weights[i] = k.x1((out * p.group_channels + c) * (p.taps_z * p.taps_y * K::TAPS_X) + tap);
                }
                __syncthreads();
                if (own && u32(z) < p.depth) {
                    const u32 line = slot * p.lines + row * line_of_row;
                    const f32* from = slab + line * p.pitch + column * (Of::SEGMENT + 1u);
                    const f32* w = weights + slot * taps * K::OUT;
                    for (u32 i = 0u; i < p.at_once; i++) {
                        Of::line_of_taps(from + i * u32(p.dilation_y) * p.pitch, w + i * K::TAPS_X * K::OUT, sums);
                    }
                }
            }
        }
    }
    const u32 y = oy + row;
    const u32 from = ox + column * Of::RUN;
    if (!own || y >= p.out_height || from >= p.out_width) {
        return;
    }
#pragma unroll
    for (u32 j = 0u; j < K::OUT; j++) {
        const u32 at = (((image * p.outputs + to + j) * p.out_depth + oz) * p.out_height + y) * p.out_width + from;
        if (p.out_width % 8u == 0u) {
            k.emit0_run(at, sums[j]);
        } else {
#pragma unroll
            for (u32 r = 0u; r < Of::RUN; r++) {
                if (from + r < p.out_width) {
                    k.emit0(at + r, sums[j][r]);
                }
            }
        }
    }
}
