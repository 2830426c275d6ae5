// Sliding windows over up to three spatial dimensions; fewer are led by dimensions of 1. Words 7d..7d+6 for dimension
// d: input, output, kernel, stride, dilation, padding before, padding after. For the transposed ones `input` is the
// result and `output` the operand. Others follow from word 21 on. ACC is the type of sums. A
// launch goes over taps lo() .. hi() of all channels, the taps of a channel in a row.

fn w_in(d: u32) -> i32 {
    return mi(d * 7u);
}

fn w_out(d: u32) -> i32 {
    return mi(d * 7u + 1u);
}

fn w_kernel(d: u32) -> i32 {
    return mi(d * 7u + 2u);
}

// The position under tap k of window o.
fn w_at(d: u32, o: i32, k: i32) -> i32 {
    return o * mi(d * 7u + 3u) + k * mi(d * 7u + 4u) - mi(d * 7u + 5u);
}

// The operand element that reaches result element p through tap k; -1 if none does.
fn w_from(d: u32, p: i32, k: i32) -> i32 {
    let q = p + mi(d * 7u + 5u) - k * mi(d * 7u + 4u);
    let s = mi(d * 7u + 3u);
    if (q < 0 || q % s != 0 || q / s >= w_out(d)) {
        return -1;
    }
    return q / s;
}

fn inside(i: i32, n: i32) -> bool {
    return i >= 0 && i < n;
}

// Three coordinates in a box of these sizes.
fn unflatten(at: u32, b: i32, c: i32) -> vec3<i32> {
    let x = i32(at % u32(c));
    let rest = at / u32(c);
    return vec3<i32>(i32(rest / u32(b)), i32(rest % u32(b)), x);
}

fn out_volume() -> u32 {
    return u32(w_out(0u) * w_out(1u) * w_out(2u));
}

fn in_volume() -> u32 {
    return u32(w_in(0u) * w_in(1u) * w_in(2u));
}

fn taps() -> u32 {
    return u32(w_kernel(0u) * w_kernel(1u) * w_kernel(2u));
}

// A tap of a kernel, and the number of all of them that go before it.
struct Tap {
    k: vec3<i32>,
    channel: u32,
}

fn tap_of(q: u32) -> Tap {
    return Tap(unflatten(q % taps(), w_kernel(1u), w_kernel(2u)), q / taps());
}

// The tap after this one of kernels of this size; behind the last one comes the first of the next channel.
fn next_tap(t: Tap, kernel: vec3<i32>) -> Tap {
    var n = t;
    n.k.z++;
    if (n.k.z == kernel.z) {
        n.k.z = 0;
        n.k.y++;
        if (n.k.y == kernel.y) {
            n.k.y = 0;
            n.k.x++;
            if (n.k.x == kernel.x) {
                n.k.x = 0;
                n.channel++;
            }
        }
    }
    return n;
}

// What is the same for all windows, read once before a loop.
fn kernel_size() -> vec3<i32> {
    return vec3<i32>(w_kernel(0u), w_kernel(1u), w_kernel(2u));
}

fn in_size() -> vec3<i32> {
    return vec3<i32>(w_in(0u), w_in(1u), w_in(2u));
}

fn dilation() -> vec3<i32> {
    return vec3<i32>(mi(4u), mi(11u), mi(18u));
}

// The position of the first tap of window o.
fn window_start(o: vec3<i32>) -> vec3<i32> {
    return vec3<i32>(w_at(0u, o.x, 0), w_at(1u, o.y, 0), w_at(2u, o.z, 0));
}

// The place of a position among the elements of its channel; -1 outside.
fn under(p: vec3<i32>, size: vec3<i32>) -> i32 {
    let inside = all(p >= vec3<i32>(0)) && all(p < size);
    return select(-1, (p.x * size.y + p.y) * size.z + p.z, inside);
}

// The place of the operand's element that reaches p through a tap; -1 if none does.
fn reaching(p: vec3<i32>, t: Tap) -> i32 {
    let z = w_from(0u, p.x, t.k.x);
    let y = w_from(1u, p.y, t.k.y);
    let x = w_from(2u, p.z, t.k.z);
    if (z >= 0 && y >= 0 && x >= 0) {
        return (z * w_out(1u) + y) * w_out(2u) + x;
    }
    return -1;
}

// ---- linear
// Where an element lies among `channels` channels of `volume` places; and the image, channel and place of one.
fn lie(image: u32, channel: u32, channels: u32, place: u32, volume: u32) -> u32 {
    return (image * channels + channel) * volume + place;
}

fn parts(at: u32, channels: u32, volume: u32) -> vec3<u32> {
    let plane = at / volume;
    return vec3<u32>(plane / channels, plane % channels, at % volume);
}

// Where the weight of a channel under a tap lies among those of an output channel; the channel and tap of one, and of the
// next one.
fn weight_at(channel: u32, channels: u32, tap: u32, taps: u32) -> u32 {
    return channel * taps + tap;
}

fn weight_tap(q: u32, channels: u32) -> Tap {
    return tap_of(q);
}

fn next_weight(t: Tap, kernel: vec3<i32>, channels: u32) -> Tap {
    return next_tap(t, kernel);
}

// ---- channels_last
fn lie(image: u32, channel: u32, channels: u32, place: u32, volume: u32) -> u32 {
    return (image * volume + place) * channels + channel;
}

fn parts(at: u32, channels: u32, volume: u32) -> vec3<u32> {
    let spot = at / channels;
    return vec3<u32>(spot / volume, at % channels, spot % volume);
}

fn weight_at(channel: u32, channels: u32, tap: u32, taps: u32) -> u32 {
    return tap * channels + channel;
}

fn weight_tap(q: u32, channels: u32) -> Tap {
    return Tap(unflatten(q / channels, w_kernel(1u), w_kernel(2u)), q % channels);
}

fn next_weight(t: Tap, kernel: vec3<i32>, channels: u32) -> Tap {
    if (t.channel + 1u < channels) {
        return Tap(t.k, t.channel + 1u);
    }
    return Tap(next_tap(t, kernel).k, 0u);
}

// ---- conv_product
// A convolution as the product of the weights of a group [rows, K] and the elements under all windows [K, windows];
// `batch` counts groups, then images.
fn depth() -> u32 {
    return m(23u) * taps();
}

fn group_of(batch: u32) -> u32 {
    return batch % (m(22u) / m(24u));
}

fn image_of(batch: u32) -> u32 {
    return batch / (m(22u) / m(24u));
}

// Where the weights and the elements of a group start.
fn weights_of(batch: u32) -> u32 {
    return group_of(batch) * m(24u) * depth();
}

fn elements_of(batch: u32) -> u32 {
    return lie(image_of(batch), group_of(batch) * m(23u), m(21u), 0u, in_volume());
}

// Where the result of a row and a column of a group lies.
fn result_at(batch: u32, i: u32, j: u32) -> u32 {
    return lie(image_of(batch), group_of(batch) * m(24u) + i, m(22u), j, out_volume());
}

// How far the elements of neighbouring channels, and of neighbouring places of a channel, are apart.
fn channel_step(channels: u32, volume: u32) -> u32 {
    return lie(0u, 1u, channels, 0u, volume);
}

fn place_step(channels: u32, volume: u32) -> u32 {
    return lie(0u, 0u, channels, 1u, volume);
}

// Where window j starts.
fn window_at(j: u32) -> vec3<i32> {
    return window_start(unflatten(j, w_out(1u), w_out(2u)));
}

// The sum that row i starts from.
fn first_sum(batch: u32, i: u32) -> ACC {
    let ch = group_of(batch) * m(24u) + i;
    return BIAS;
}

// ---- conv_block
// A thread sums a block of rows and columns; all that does not change is read before the loop.
THREADS block {
    let rows = m(24u);
    let cols = out_volume();
    let depth = depth();
    let across = (cols + BLOCK_N - 1u) / BLOCK_N;
    let down = (rows + BLOCK_M - 1u) / BLOCK_M;
    let j0 = (t % across) * BLOCK_N;
    let i0 = ((t / across) % down) * BLOCK_M;
    let batch = t / across / down;
    let base_a = weights_of(batch);
    let base_b = elements_of(batch);
    let base_y = result_at(batch, i0, j0);
    let row_step = channel_step(m(22u), cols);
    let column_step = place_step(m(22u), cols);
    let next_place = place_step(m(21u), in_volume());
    let next_channel = channel_step(m(21u), in_volume());
    let size = in_size();
    let step = dilation();
    let kernel = kernel_size();
    ROWS
    COLUMNS
    SUMS
    LOOP
    STORES
}

// ---- conv_taps
// Taps, then channels: where a tap meets the windows is found once for a run of channels. A launch goes over products
// lo() .. hi() in this order. What lies outside is read at the start of the group, and counts as zero.
    let channels = m(23u);
    let per_row = taps();
    let weight_step = weight_at(1u, channels, 0u, per_row);
    let last = hi();
    var q = lo();
    while (q < last) {
        let tap = q / channels;
        let first = q % channels;
        let until = first + min(min(channels - first, last - q), RUN);
        let k = unflatten(tap, kernel.y, kernel.z) * step;
        PLACES
        var at_a = weight_at(first, channels, tap, per_row);
        var at_b = first * next_channel;
        FRESH
        for (var c = first; c < until; c++) {
            LOADS
            PRODUCTS
            at_a += weight_step;
            at_b += next_channel;
        }
        JOINED
        q += until - first;
    }

// ---- conv_words
// Four products at once, in the order of weights. Word 25 tells whether rows of weights lie in whole words.
    let whole = m(25u) != 0u;
    let steps = vec2<u32>(next_channel, next_place);
    let last = hi();
    let channels = m(23u);
    var tap = weight_tap(lo(), channels);
    FRESH
    for (var k = lo(); k < last; k += 4u) {
        let tap1 = next_weight(tap, kernel, channels);
        let tap2 = next_weight(tap1, kernel, channels);
        let tap3 = next_weight(tap2, kernel, channels);
        LOADS
        PRODUCTS
        tap = next_weight(tap3, kernel, channels);
    }
    JOINED

// ---- conv_packed
// Four weights of a row from k on as the bytes of a word, zeros behind the last one.
fn left(row: u32, k: u32, depth: u32, whole: bool) -> u32 {
    if (whole) {
        return w1((row + k) / 4u);
    }
    var w = 0u;
    for (var q = 0u; q < 4u && k + q < depth; q++) {
        w |= (bitcast<u32>(x1(row + k + q)) & 255u) << (q * 8u);
    }
    return w;
}

// The element under a tap as a byte; zero where the place is outside (-1) or the tap does not count.
fn byte_of(base: u32, channel: u32, i: i32, steps: vec2<u32>, counts: bool) -> u32 {
    let reads = counts && i >= 0;
    let v = x0(base + select(0u, channel * steps.x + u32(i) * steps.y, reads));
    return select(0u, bitcast<u32>(v) & 255u, reads);
}

// ---- conv_tiled
fn begin(batch: u32, i: u32, j: u32) -> ACC {
    if (i >= m(24u) || j >= out_volume()) {
        return ZERO;
    }
    return resume(result_at(batch, i, j), first_sum(batch, i));
}

fn finish_sum(batch: u32, i: u32, j: u32, v: ACC) {
    if (i >= m(24u) || j >= out_volume()) {
        return;
    }
    let at = result_at(batch, i, j);
    if (hi() < depth()) {
        keep(at, v);
    } else {
        emit0(at, v);
    }
}

var<workgroup> tile_a: array<vec4<f32>, SIZE_A>;
var<workgroup> tile_b: array<vec4<f32>, SIZE_B>;

fn load_a(e: u32, k0: u32, i0: u32, base: u32, rows: u32, depth: u32) {
    let k = k0 + e % TILE_K;
    let r = e / TILE_K;
    var v = 0.0;
    if (k < depth && i0 + r < rows) {
        v = x1(base + (i0 + r) * depth + k);
    }
    tile_a[(e % TILE_K) * ROW_A + r / 4u][r % 4u] = v;
}

// Where the windows of the columns start, and how far from that the taps of the tile are; the last number is the channel.
var<workgroup> column_starts: array<vec3<i32>, TILE_N>;
var<workgroup> tap_steps: array<vec4<i32>, TILE_K>;

fn load_b(e: u32, k0: u32, j0: u32, base: u32, cols: u32, depth: u32, size: vec3<i32>) {
    let k = e / TILE_N;
    let c = e % TILE_N;
    var v = 0.0;
    if (k0 + k < depth && j0 + c < cols) {
        let s = tap_steps[k];
        let i = under(column_starts[c] + s.xyz, size);
        if (i >= 0) {
            v = x0(base + lie(0u, u32(s.w), m(21u), u32(i), in_volume()));
        }
    }
    tile_b[k * ROW_B + c / 4u][c % 4u] = v;
}

GROUPS tiled THREAD_COUNT {
    let rows = m(24u);
    let cols = out_volume();
    let depth = depth();
    let across = (cols + TILE_N - 1u) / TILE_N;
    let down = (rows + TILE_M - 1u) / TILE_M;
    let j0 = (group % across) * TILE_N;
    let i0 = ((group / across) % down) * TILE_M;
    let batch = group / across / down;
    let base_a = weights_of(batch);
    let base_b = elements_of(batch);
    let ti = l / ACROSS;
    let tj = l % ACROSS;
    let i = i0 + ti * THREAD_M;
    let j = j0 + tj * THREAD_N;
    let size = in_size();
    for (var c = l; c < TILE_N; c += THREAD_COUNT) {
        column_starts[c] = window_at(min(j0 + c, cols - 1u));
    }
    SUMS
    for (var k0 = lo(); k0 < hi(); k0 += TILE_K) {
        if (l < TILE_K) {
            let tap = weight_tap(k0 + l, m(23u));
            tap_steps[l] = vec4<i32>(tap.k * dilation(), i32(tap.channel));
        }
        workgroupBarrier();
        LOADS
        workgroupBarrier();
        PRODUCTS
        workgroupBarrier();
    }
    STORES
}

