// Results whose innermost dimension is not that of x: tiles of two dimensions by way of shared memory, where p is dense in x
// and q in the result.
#pragma once
#include "../slice/copy.cuh"
#include "../slice/divisor.cuh"

struct TransposeTilesParams {
    u32 offset;
    u32 size_p;
    u32 size_q;
    u32 stride_q;
    u32 own_stride_p;
    u32 tiles_p;
    u32 tiles_q;
    u32 bits_p;
    u32 even;
    u32 inner;
    u32 inner_factor;
    u32 inner_shift;
    u32 stride_outer;
    u32 rank;
    u32 sizes[5];
    u32 factors[5];
    u32 shifts[5];
    u32 strides[5];
    u32 own_strides[5];
};

// Start of a block's tile.
struct Tile {
    u32 p, q, source, result;
};

template <class K> DEV Tile tile_of_block(const K& k, u32 side_p, u32 side_q) {
    const auto& p = params<TransposeTilesParams>(k);
    const u32 rows = blockIdx.x / p.tiles_q;
    u32 rest = rows / p.tiles_p;
    Tile t = {(rows - rest * p.tiles_p) * side_p, (blockIdx.x - rows * p.tiles_q) * side_q, p.offset, 0u};
#pragma unroll
    for (u32 d = 0u; d < 5u; d++) {
        if (d < p.rank) {
            const Divisor size{p.sizes[d], p.factors[d], p.shifts[d]};
            const u32 q = divide(rest, size);
            const u32 c = rest - q * size.size;
            t.source += c * p.strides[d];
            t.result += c * p.own_strides[d];
            rest = q;
        }
    }
    return t;
}

// Distance in x from the first element of q to number `at`: q may be two dimensions that lie apart. ONE: it is one.
template <bool ONE> DEV u32 along_q(const TransposeTilesParams& p, u32 at) {
    if constexpr (ONE) {
        return at * p.stride_q;
    }
    const u32 outer = divide(at, Divisor{p.inner, p.inner_factor, p.inner_shift});
    return outer * p.stride_outer + (at - outer * p.inner) * p.stride_q;
}

// Elements of a tile, whose side along p is a power of two: 32, 64 or 128.
constexpr u32 AREA_BITS = 12u;
constexpr u32 AREA = 1u << AREA_BITS;
// Threads of a block.
constexpr u32 MOVERS = 256u;

// The place of a thread among rows of 2^bits elements or vectors, and how many rows a block takes at a time.
struct Share {
    u32 x, y, step;
    DEV explicit Share(u32 bits) : x(threadIdx.x & ((1u << bits) - 1u)), y(threadIdx.x >> bits), step(MOVERS >> bits) {}
};

// Elements behind each row of a tile, so that a column's are in different banks. Eight neighbouring rows of 2 bytes, read by vectors of
// columns, are in different banks where rows are odd.
template <class Cell> constexpr u32 PAD = sizeof(Cell) == 1u ? 4u : sizeof(Cell) == 2u ? 2u : 1u;
template <class Cell> constexpr u32 PAD_OF_8 = sizeof(Cell) == 2u ? 1u : PAD<Cell>;
// Room of a tile: the most rows have 32 elements.
template <class Cell> constexpr u32 TILE_ROOM = AREA / 32u * (32u + PAD<Cell>);

// Rows of x (READS) or of the result begin at multiples of 8 elements and end there: bits of `even`.
constexpr u32 READS = 1u;
constexpr u32 WRITES = 2u;

// Two vectors of x, of a thread. All loads of a tile are in flight before the first of them is stored.
template <class K> DEV void load_vectors(const K& k, const Tile& own, Run<typename K::Cell> (&r)[2]) {
    const auto& p = params<TransposeTilesParams>(k);
    const Share share(p.bits_p - 3u);
    const u32 x = share.x * 8u;
#pragma unroll
    for (u32 i = 0u; i < 2u; i++) {
        const u32 q = own.q + share.y + i * share.step;
        if (own.p + x < p.size_p && q < p.size_q) {
            r[i] = Run<typename K::Cell>::of(k.bx0 + own.source + along_q<false>(p, q) + own.p + x, 1u);
        }
    }
}

// Brings a tile to shared memory by vectors, PADDING elements behind each row.
template <u32 PADDING, class K> DEV void read_vectors(const K& k, typename K::Cell* tile, const Tile& own) {
    const auto& p = params<TransposeTilesParams>(k);
    const Share share(p.bits_p - 3u);
    const u32 pitch = (1u << p.bits_p) + PADDING;
    Run<typename K::Cell> r[2] = {};
    load_vectors(k, own, r);
    typename K::Cell* const to = tile + share.y * pitch + share.x * 8u;
    const u32 second = share.step * pitch;
#pragma unroll
    for (u32 i = 0u; i < 16u; i++) {
        to[(i < 8u ? 0u : second) + i % 8u] = r[i / 8u].v[i % 8u];
    }
}

// Brings a tile to shared memory element by element.
template <bool ONE, u32 PADDING, class K> DEV void read_ones(const K& k, typename K::Cell* tile, const Tile& own) {
    const auto& p = params<TransposeTilesParams>(k);
    const Share share(p.bits_p);
    const u32 rows = own.p + share.x < p.size_p ? p.size_q - own.q : 0u;
    const u32 first = own.source + own.p + share.x;
    typename K::Cell r[16] = {};
#pragma unroll
    for (u32 i = 0u; i < 16u; i++) {
        const u32 q = share.y + i * share.step;
        if (q < rows) {
            r[i] = k.bx0[first + along_q<ONE>(p, own.q + q)];
        }
    }
#pragma unroll
    for (u32 i = 0u; i < 16u; i++) {
        tile[(share.y + i * share.step) * ((1u << p.bits_p) + PADDING) + share.x] = r[i];
    }
}

// Writes a tile by vectors.
template <u32 PADDING, class K> DEV void write_vectors(const K& k, const typename K::Cell* tile, const Tile& own) {
    const auto& p = params<TransposeTilesParams>(k);
    const u32 pitch = (1u << p.bits_p) + PADDING;
    const Share share(AREA_BITS - 3u - p.bits_p);
    const u32 x = share.x * 8u;
#pragma unroll
    for (u32 i = 0u; i < 2u; i++) {
        const u32 down = share.y + i * share.step;
        if (own.p + down < p.size_p && own.q + x < p.size_q) {
            Run<typename K::Cell> out;
#pragma unroll
            for (u32 j = 0u; j < 8u; j++) {
                out.v[j] = tile[(x + j) * pitch + down];
            }
            put_8(k, out, own.result + (own.p + down) * p.own_stride_p + own.q + x);
        }
    }
}

// Writes a tile element by element.
template <u32 PADDING, class K> DEV void write_ones(const K& k, const typename K::Cell* tile, const Tile& own) {
    const auto& p = params<TransposeTilesParams>(k);
    const Share share(AREA_BITS - p.bits_p);
    const u32 rows = own.q + share.x < p.size_q ? p.size_p - own.p : 0u;
    const u32 first = own.result + (own.p + share.y) * p.own_stride_p + own.q + share.x;
    const typename K::Cell* const from = tile + share.x * ((1u << p.bits_p) + PADDING) + share.y;
#pragma unroll
    for (u32 i = 0u; i < 16u; i++) {
        const u32 down = i * share.step;
        if (share.y + down < rows) {
            copy_1(k, from + down, first + down * p.own_stride_p);
        }
    }
}

// Transposes a tile of which one side has no vectors, or none.
template <class K> DEV void tiles(const K& k) {
    typedef typename K::Cell Cell;
    __shared__ Cell tile[TILE_ROOM<Cell>];
    const auto& p = params<TransposeTilesParams>(k);
    const Tile own = tile_of_block(k, 1u << p.bits_p, AREA >> p.bits_p);
    const bool one = p.inner == p.size_q;
    if ((p.even & WRITES) != 0u) {
        if (one) {
            read_ones<true, PAD_OF_8<Cell>>(k, tile, own);
        } else {
            read_ones<false, PAD_OF_8<Cell>>(k, tile, own);
        }
        __syncthreads();
        write_vectors<PAD_OF_8<Cell>>(k, tile, own);
        return;
    }
    if ((p.even & READS) != 0u) {
        read_vectors<PAD<Cell>>(k, tile, own);
    } else if (one) {
        read_ones<true, PAD<Cell>>(k, tile, own);
    } else {
        read_ones<false, PAD<Cell>>(k, tile, own);
    }
    __syncthreads();
    write_ones<PAD<Cell>>(k, tile, own);
}

// Transposes a tile by vectors: both sizes, strides and the offset are multiples of 8.
template <class K> DEV void tiles_of_8(const K& k) {
    typedef typename K::Cell Cell;
    __shared__ __align__(16) Cell tile[TILE_ROOM<Cell>];
    const auto& p = params<TransposeTilesParams>(k);
    const Tile own = tile_of_block(k, 1u << p.bits_p, AREA >> p.bits_p);
    if constexpr (sizeof(Cell) == 2u) {
        // Words hold two neighbours along p: a thread has two lines of the result.
        const u32 pitch = ((1u << p.bits_p) + PAD<Cell>) / 2u;
        u32* const words = reinterpret_cast<u32*>(tile);
        const Share read(p.bits_p - 3u);
        u32* const to = words + read.y * pitch + read.x * 4u;
        const u32 second = read.step * pitch;
        Run<Cell> r[2] = {};
        load_vectors(k, own, r);
#pragma unroll
        for (u32 i = 0u; i < 2u; i++) {
#pragma unroll
            for (u32 j = 0u; j < 4u; j++) {
                to[(i == 0u ? 0u : second) + j] = u32(r[i].v[j * 2u]) | (u32(r[i].v[j * 2u + 1u]) << 16);
            }
        }
        __syncthreads();
        const Share write(AREA_BITS - 3u - p.bits_p);
        const u32 x = write.x * 8u;
        Run<Cell> out[2];
#pragma unroll
        for (u32 j = 0u; j < 8u; j++) {
            const u32 both = words[(x + j) * pitch + write.y];
            out[0].v[j] = Cell(both);
            out[1].v[j] = Cell(both >> 16);
        }
#pragma unroll
        for (u32 i = 0u; i < 2u; i++) {
            const u32 down = write.y * 2u + i;
            if (own.p + down < p.size_p && own.q + x < p.size_q) {
                put_8(k, out[i], own.result + (own.p + down) * p.own_stride_p + own.q + x);
            }
        }
    } else {
        read_vectors<PAD<Cell>>(k, tile, own);
        __syncthreads();
        write_vectors<PAD<Cell>>(k, tile, own);
    }
}

// Places of a block, and elements from one row of its tile to the next.
template <class Cell> constexpr u32 PLACES = sizeof(Cell) == 8u ? 256u : 512u;
template <class Cell> constexpr u32 FEW_PITCH = PLACES<Cell> + 2u;

// Element by element, where vectors do not start at multiples of their size; rows take no division.
template <bool FEW_LAST, class K>
DEV void few_by_ones(const K& k, typename K::Cell* tile, u32 count, u32 factor, u32 places, u32 flat, u32 apart, u32 step) {
    typedef typename K::Cell Cell;
    // Some loads are in flight before the first of them is stored.
    constexpr u32 AT_ONCE = 4u;
    if constexpr (FEW_LAST) {
        for (u32 first = 0u; first < count; first += AT_ONCE) {
            for (u32 x = threadIdx.x; x < places; x += K::LANES) {
                Cell r[AT_ONCE] = {};
#pragma unroll
                for (u32 i = 0u; i < AT_ONCE; i++) {
                    if (first + i < count) {
                        r[i] = k.bx0[apart + (first + i) * step + x];
                    }
                }
#pragma unroll
                for (u32 i = 0u; i < AT_ONCE; i++) {
                    if (first + i < count) {
                        tile[(first + i) * FEW_PITCH<Cell> + x] = r[i];
                    }
                }
            }
        }
    } else {
        for (u32 t = threadIdx.x; t < places * count; t += K::LANES * AT_ONCE) {
            Cell r[AT_ONCE] = {};
#pragma unroll
            for (u32 i = 0u; i < AT_ONCE; i++) {
                if (t + i * K::LANES < places * count) {
                    r[i] = k.bx0[flat + t + i * K::LANES];
                }
            }
#pragma unroll
            for (u32 i = 0u; i < AT_ONCE; i++) {
                const u32 at = t + i * K::LANES;
                const u32 place = (at * factor) >> 20;
                if (at < places * count) {
                    tile[(at - place * count) * FEW_PITCH<Cell> + place] = r[i];
                }
            }
        }
    }
    __syncthreads();
    if constexpr (FEW_LAST) {
        for (u32 t = threadIdx.x; t < places * count; t += K::LANES) {
            const u32 place = (t * factor) >> 20;
            copy_1(k, tile + (t - place * count) * FEW_PITCH<Cell> + place, flat + t);
        }
    } else {
        for (u32 row = 0u; row < count; row++) {
            for (u32 x = threadIdx.x; x < places; x += K::LANES) {
                copy_1(k, tile + row * FEW_PITCH<Cell> + x, apart + row * step + x);
            }
        }
    }
}

// A small dimension beside a large one: `few` elements of a place are neighbours in the result (with FEW_LAST) or in x. A block has 512
// places (256 of elements of 8 bytes), and all dimensions between are gone.
template <bool FEW_LAST, class K> DEV void few(const K& k) {
    typedef typename K::Cell Cell;
    __shared__ Cell tile[16u * FEW_PITCH<Cell>];
    const auto& p = params<TransposeTilesParams>(k);
    const Tile own = tile_of_block(k, FEW_LAST ? PLACES<Cell> : p.size_p, FEW_LAST ? p.size_q : PLACES<Cell>);
    const u32 count = FEW_LAST ? p.size_q : p.size_p;
    const u32 first = FEW_LAST ? own.p : own.q;
    const u32 places = min(PLACES<Cell>, (FEW_LAST ? p.size_p : p.size_q) - first);
    const u32 width = p.even == (READS | WRITES) ? 8u : 1u;
    // Elements of a place lie together: at `flat`.
    const u32 flat = (FEW_LAST ? own.result : own.source) + first * count;
    const u32 apart = (FEW_LAST ? own.source : own.result) + first;
    const u32 step = FEW_LAST ? p.stride_q : p.own_stride_p;
    // Divisions by the number of elements of a place, exact for those of a block.
    const u32 factor = (1u << 20) / count + 1u;
    if (width == 1u) {
        few_by_ones<FEW_LAST>(k, tile, count, factor, places, flat, apart, step);
        return;
    }
    for (u32 t = threadIdx.x * 8u; t < places * count; t += K::LANES * 8u) {
        const u32 row = t / places;
        const u32 x = t - row * places;
        const auto r = Run<Cell>::of(k.bx0 + (FEW_LAST ? apart + row * step + x : flat + t), 1u);
        u32 place = (t * factor) >> 20;
        u32 c = t - place * count;
#pragma unroll
        for (u32 j = 0u; j < 8u; j++) {
            if constexpr (FEW_LAST) {
                tile[row * FEW_PITCH<Cell> + x + j] = r.v[j];
            } else {
                tile[c * FEW_PITCH<Cell> + place] = r.v[j];
                c++;
                place += u32(c == count);
                c = c == count ? 0u : c;
            }
        }
    }
    __syncthreads();
    for (u32 t = threadIdx.x * 8u; t < places * count; t += K::LANES * 8u) {
        const u32 row = t / places;
        const u32 x = t - row * places;
        u32 place = (t * factor) >> 20;
        u32 c = t - place * count;
        Run<Cell> out;
#pragma unroll
        for (u32 j = 0u; j < 8u; j++) {
            if constexpr (FEW_LAST) {
                out.v[j] = tile[c * FEW_PITCH<Cell> + place];
                c++;
                place += u32(c == count);
                c = c == count ? 0u : c;
            } else {
                out.v[j] = tile[row * FEW_PITCH<Cell> + x + j];
            }
        }
        put_8(k, out, FEW_LAST ? flat + t : apart + row * step + x);
    }
}

template <class K> DEV void few_last(const K& k) { few<true>(k); }
template <class K> DEV void few_first(const K& k) { few<false>(k); }

// N elements of a place that are neighbours in the result (LAST) or in x: a thread has 8 places in registers. The first dimension of the
// arrays are vectors of places.
template <u32 N, bool LAST, class K> DEV void weave(const K& k, u32 t) {
    typedef typename K::Cell Cell;
    const auto& p = params<TransposeTilesParams>(k);
    u32 source = p.offset;
    u32 result = 0u;
#pragma unroll
    for (u32 d = 0u; d < 5u; d++) {
        if (d < p.rank) {
            const Divisor size{p.sizes[d], p.factors[d], p.shifts[d]};
            const u32 q = divide(t, size);
            const u32 c = t - q * size.size;
            source += c * p.strides[d];
            result += c * p.own_strides[d];
            t = q;
        }
    }
    Run<Cell> in[N];
#pragma unroll
    for (u32 c = 0u; c < N; c++) {
        in[c] = Run<Cell>::of(k.bx0 + source + c * (LAST ? p.stride_q : 8u), 1u);
    }
#pragma unroll
    for (u32 c = 0u; c < N; c++) {
        Run<Cell> out;
#pragma unroll
        for (u32 j = 0u; j < 8u; j++) {
            out.v[j] = LAST ? in[(8u * c + j) % N].v[(8u * c + j) / N] : in[(j * N + c) / 8u].v[(j * N + c) % 8u];
        }
        put_8(k, out, result + c * (LAST ? 8u : p.own_stride_p));
    }
}

template <class K> DEV void weave_2(const K& k, u32 t) { weave<2u, true>(k, t); }
template <class K> DEV void weave_3(const K& k, u32 t) { weave<3u, true>(k, t); }
template <class K> DEV void weave_4(const K& k, u32 t) { weave<4u, true>(k, t); }
template <class K> DEV void part_2(const K& k, u32 t) { weave<2u, false>(k, t); }
template <class K> DEV void part_3(const K& k, u32 t) { weave<3u, false>(k, t); }
template <class K> DEV void part_4(const K& k, u32 t) { weave<4u, false>(k, t); }
