enable f16;
enable wgpu_cooperative_matrix;

// Attention by cooperative matrices. SPLIT subgroups of LANES threads have PART queries of a head, of which a workgroup has ROWS, and share
// the columns of scores and results. Keys come KEYS at a time: scores, weights, and products of weights and values, which are summed
// in registers. Weights are relative to a reference of each row, its greatest score when the reference was last raised. It is raised
// where a score exceeds it by more than GROWTH. Only then are sums multiplied, as cooperative matrices have no operation for rows.

const THREADS: u32 = SUBGROUPS * LANES;

const ROWS: u32 = SUBGROUPS / SPLIT * PART;

// Parts of scores of a subgroup.
const FRAGMENTS: u32 = KEYS / PART / SPLIT;

// Lines in workgroup memory, in quads: four neighbours. Two more quads follow, so that the rows of a part begin in different banks.
const STEP_HEAD: u32 = HEAD / 4u + 2u;

const STEP_WEIGHTS: u32 = KEYS / 4u + 2u;

const STEP_SCORES: u32 = KEYS / 4u + 2u;

// Quads of the keys that are loaded at once.
const QUADS: u32 = KEYS * HEAD / 4u;

// Whether threads have quads of equal places in their lines, which are APART lines apart.
const REGULAR: bool = THREADS % (HEAD / 4u) == 0u && QUADS % THREADS == 0u;

const APART: u32 = THREADS / (HEAD / 4u);

// Whether threads have four quads each, not eight.
const FOUR: bool = QUADS == 4u * THREADS;

// First quad of the values, behind the keys.
const VALUES: u32 = KEYS * STEP_HEAD;

// Keys and values; at first the queries.
var<workgroup> tile: array<vec4<f16>, 2u * VALUES>;

var<workgroup> tile_scores: array<vec4<f32>, ROWS * STEP_SCORES>;

var<workgroup> tile_weights: array<vec4<f16>, ROWS * STEP_WEIGHTS>;

// A number of each thread that others of its row read.
var<workgroup> found: array<f32, THREADS>;

// Whether some row has a score far above its reference, and whether such a row has sums.
var<workgroup> grown: u32;

var<workgroup> filled: u32;

// Threads of a row.
const SHARE: u32 = THREADS / ROWS;

// Quads of scores of a thread, SHARE apart.
const OWN: u32 = KEYS / 4u / SHARE;

// Distance of a score from the reference of its row that raises the reference. Weights are below its power of e, which f16 has.
const GROWTH: f32 = 8.0;

// The place of position 0 of a head in an input, its positions and components.
struct Head {
    first: u32,
    step: u32,
    count: u32,
    size: u32,
    whole: bool,
}

fn head_of(first: u32, step: u32, count: u32, size: u32) -> Head {
    return Head(first, step, count, size, ((first | step | size) & 3u) == 0u);
}

struct Eight {
    a: vec4<f16>,
    b: vec4<f16>,
    c: vec4<f16>,
    d: vec4<f16>,
    e: vec4<f16>,
    f: vec4<f16>,
    g: vec4<f16>,
    h: vec4<f16>,
}

// Components of a quad that a head has, from component d on.
fn components(h: Head, i: u32, d: u32) -> u32 {
    if (i >= h.count || d >= h.size) {
        return 0u;
    }
    return min(4u, h.size - d);
}

fn quad_of_q(h: Head, i: u32, d: u32) -> vec4<f16> {
    let at = h.first + i * h.step + d;
    let count = components(h, i, d);
    if (h.whole) {
        return select(vec4<f16>(), quad0(at), count > 0u);
    }
    var v = vec4<f16>();
    for (var c = 0u; c < count; c++) {
        v[c] = f16(x0(at + c));
    }
    return v;
}

// Quad e of a tile of keys from position j0 on.
fn quad_of_k(h: Head, j0: u32, e: u32) -> vec4<f16> {
    if (e >= QUADS) {
        return vec4<f16>();
    }
    let j = j0 + e / (HEAD / 4u);
    let d = e % (HEAD / 4u) * 4u;
    let at = h.first + j * h.step + d;
    let count = components(h, j, d);
    if (h.whole) {
        return select(vec4<f16>(), quad1(at), count > 0u);
    }
    var v = vec4<f16>();
    for (var c = 0u; c < count; c++) {
        v[c] = f16(x1(at + c));
    }
    return v;
}

fn eight_of_k(h: Head, j0: u32, e: u32) -> Eight {
    if (REGULAR && h.whole && h.size == HEAD && j0 + KEYS <= h.count && (FOUR || e + 7u * THREADS < QUADS)) {
        let at = h.first + (j0 + e / (HEAD / 4u)) * h.step + e % (HEAD / 4u) * 4u;
        let step = APART * h.step;
        if (FOUR) {
            let none = vec4<f16>();
            let more = quad1(at + 2u * step);
            return Eight(quad1(at), quad1(at + step), more, quad1(at + 3u * step), none, none, none, none);
        }
        return Eight(
            quad1(at),
            quad1(at + step),
            quad1(at + 2u * step),
            quad1(at + 3u * step),
            quad1(at + 4u * step),
            quad1(at + 5u * step),
            quad1(at + 6u * step),
            quad1(at + 7u * step),
        );
    }
    var r = Eight();
    r.a = quad_of_k(h, j0, e);
    if (THREADS < QUADS) {
        r.b = quad_of_k(h, j0, e + THREADS);
    }
    if (2u * THREADS < QUADS) {
        r.c = quad_of_k(h, j0, e + 2u * THREADS);
    }
    if (3u * THREADS < QUADS) {
        r.d = quad_of_k(h, j0, e + 3u * THREADS);
    }
    if (4u * THREADS < QUADS) {
        r.e = quad_of_k(h, j0, e + 4u * THREADS);
    }
    if (5u * THREADS < QUADS) {
        r.f = quad_of_k(h, j0, e + 5u * THREADS);
    }
    if (6u * THREADS < QUADS) {
        r.g = quad_of_k(h, j0, e + 6u * THREADS);
    }
    if (7u * THREADS < QUADS) {
        r.h = quad_of_k(h, j0, e + 7u * THREADS);
    }
    return r;
}

// Quad e of a tile of values from position j0 on.
fn quad_of_v(h: Head, j0: u32, e: u32) -> vec4<f16> {
    if (e >= QUADS) {
        return vec4<f16>();
    }
    let j = j0 + e / (HEAD / 4u);
    let d = e % (HEAD / 4u) * 4u;
    let at = h.first + j * h.step + d;
    let count = components(h, j, d);
    if (h.whole) {
        return select(vec4<f16>(), quad2(at), count > 0u);
    }
    var v = vec4<f16>();
    for (var c = 0u; c < count; c++) {
        v[c] = f16(x2(at + c));
    }
    return v;
}

fn eight_of_v(h: Head, j0: u32, e: u32) -> Eight {
    if (REGULAR && h.whole && h.size == HEAD && j0 + KEYS <= h.count && (FOUR || e + 7u * THREADS < QUADS)) {
        let at = h.first + (j0 + e / (HEAD / 4u)) * h.step + e % (HEAD / 4u) * 4u;
        let step = APART * h.step;
        if (FOUR) {
            let none = vec4<f16>();
            let more = quad2(at + 2u * step);
            return Eight(quad2(at), quad2(at + step), more, quad2(at + 3u * step), none, none, none, none);
        }
        return Eight(
            quad2(at),
            quad2(at + step),
            quad2(at + 2u * step),
            quad2(at + 3u * step),
            quad2(at + 4u * step),
            quad2(at + 5u * step),
            quad2(at + 6u * step),
            quad2(at + 7u * step),
        );
    }
    var r = Eight();
    r.a = quad_of_v(h, j0, e);
    if (THREADS < QUADS) {
        r.b = quad_of_v(h, j0, e + THREADS);
    }
    if (2u * THREADS < QUADS) {
        r.c = quad_of_v(h, j0, e + 2u * THREADS);
    }
    if (3u * THREADS < QUADS) {
        r.d = quad_of_v(h, j0, e + 3u * THREADS);
    }
    if (4u * THREADS < QUADS) {
        r.e = quad_of_v(h, j0, e + 4u * THREADS);
    }
    if (5u * THREADS < QUADS) {
        r.f = quad_of_v(h, j0, e + 5u * THREADS);
    }
    if (6u * THREADS < QUADS) {
        r.g = quad_of_v(h, j0, e + 6u * THREADS);
    }
    if (7u * THREADS < QUADS) {
        r.h = quad_of_v(h, j0, e + 7u * THREADS);
    }
    return r;
}

fn put_quad(first: u32, e: u32, v: vec4<f16>) {
    if (e < QUADS) {
        tile[first + e / (HEAD / 4u) * STEP_HEAD + e % (HEAD / 4u)] = v;
    }
}

fn put_eight(first: u32, e: u32, v: Eight) {
    if (REGULAR && QUADS % (8u * THREADS) == 0u) {
        let at = first + e / (HEAD / 4u) * STEP_HEAD + e % (HEAD / 4u);
        tile[at] = v.a;
        tile[at + APART * STEP_HEAD] = v.b;
        tile[at + 2u * APART * STEP_HEAD] = v.c;
        tile[at + 3u * APART * STEP_HEAD] = v.d;
        tile[at + 4u * APART * STEP_HEAD] = v.e;
        tile[at + 5u * APART * STEP_HEAD] = v.f;
        tile[at + 6u * APART * STEP_HEAD] = v.g;
        tile[at + 7u * APART * STEP_HEAD] = v.h;
        return;
    }
    put_quad(first, e, v.a);
    if (THREADS < QUADS) {
        put_quad(first, e + THREADS, v.b);
    }
    if (2u * THREADS < QUADS) {
        put_quad(first, e + 2u * THREADS, v.c);
    }
    if (3u * THREADS < QUADS) {
        put_quad(first, e + 3u * THREADS, v.d);
    }
    if (4u * THREADS < QUADS) {
        put_quad(first, e + 4u * THREADS, v.e);
    }
    if (5u * THREADS < QUADS) {
        put_quad(first, e + 5u * THREADS, v.f);
    }
    if (6u * THREADS < QUADS) {
        put_quad(first, e + 6u * THREADS, v.g);
    }
    if (7u * THREADS < QUADS) {
        put_quad(first, e + 7u * THREADS, v.h);
    }
}

// Puts the queries where keys and values come later.
fn put_queries(h: Head, i0: u32, lane: u32) {
    for (var e = lane; e < ROWS * HEAD / 4u; e += THREADS) {
        let i = e / (HEAD / 4u);
        let d = e % (HEAD / 4u);
        tile[i * STEP_HEAD + d] = quad_of_q(h, i0 + i, d * 4u);
    }
}

// Keys that some query of the workgroup sees.
fn first_key(i0: u32) -> u32 {
    if (LEFT >= 0) {
        return u32(max(i32(i0) - LEFT, 0)) / KEYS * KEYS;
    }
    return 0u;
}

fn end_key(p: AttentionParams, i0: u32) -> u32 {
    var end = p.keys;
    if (p.causal != 0u) {
        end = min(end, i0 + ROWS);
    }
    if (RIGHT >= 0) {
        end = min(end, i0 + ROWS + u32(RIGHT));
    }
    return end;
}

// Whether all queries of the workgroup see all keys from j0 on that are loaded at once, and their scores are products.
fn sees_all(p: AttentionParams, i0: u32, j0: u32) -> bool {
    var all = !HAS_MASK && p.cap == 0.0 && j0 + KEYS <= p.keys;
    if (p.causal != 0u) {
        all = all && j0 + KEYS <= i0 + 1u;
    }
    if (LEFT >= 0) {
        all = all && i32(i0 + ROWS - 1u) - i32(j0) <= LEFT;
    }
    if (RIGHT >= 0) {
        all = all && i32(j0 + KEYS - 1u) - i32(i0) <= RIGHT;
    }
    return all;
}

// The scores of query i and four keys from j on, with these biases; minus infinity for keys that take no part.
fn finished_four(p: AttentionParams, i: u32, j: u32, products: vec4<f32>, added: vec4<f32>) -> vec4<f32> {
    let places = vec4<u32>(j, j + 1u, j + 2u, j + 3u);
    var v = products * p.scale;
    if (p.cap > 0.0) {
        v = vec4<f32>(capped(p, v.x), capped(p, v.y), capped(p, v.z), capped(p, v.w));
    }
    var seen = places < vec4<u32>(p.keys);
    if (p.causal != 0u) {
        seen = seen & (places <= vec4<u32>(i));
    }
    let ahead = vec4<i32>(places) - vec4<i32>(i32(i));
    if (LEFT >= 0) {
        seen = seen & (ahead >= vec4<i32>(-LEFT));
    }
    if (RIGHT >= 0) {
        seen = seen & (ahead <= vec4<i32>(RIGHT));
    }
    if (HAS_MASK) {
        seen = seen & (places < vec4<u32>(p.mask_keys));
        // Only what is hidden behind a number has a bias above 0.
        v = select(v + added, vec4<f32>(cf(HIDDEN)), vec4<bool>(HIDES) & (added > vec4<f32>(0.0)));
        seen = seen & (bitcast<vec4<u32>>(added) != vec4<u32>(0xff800000u));
    }
    return select(vec4<f32>(cf(0xff800000u)), v, seen);
}

// Biases of four keys from j on in a line of the mask, of those below the end.
fn masked_four(row: u32, j: u32, end: u32, step: u32) -> vec4<f32> {
    if (j + 4u <= end) {
        return masked_quad(row + j * step, step);
    }
    var v = vec4<f32>();
    for (var c = 0u; c < min(4u, end - min(j, end)); c++) {
        v[c] = masked(row + (j + c) * step);
    }
    return v;
}

// Whether all biases from key j0 on that are needed at once are whole words of the mask.
fn has_whole_biases(p: AttentionParams, j0: u32) -> bool {
    let places = p.mask_offset | p.mask_batch | p.mask_head | p.mask_query;
    return p.mask_key == 1u && places % 4u == 0u && j0 + KEYS <= min(p.keys, p.mask_keys);
}

// The first bias of a query.
fn biases_of(p: AttentionParams, b: u32, h: u32, i: u32) -> u32 {
    let query = min(i, p.queries - 1u);
    return p.mask_offset + b * p.mask_batch + h * p.mask_head + query * p.mask_query;
}

// Puts scores in the place of products where queries may see fewer keys.
fn finish_scores(p: AttentionParams, b: u32, h: u32, i0: u32, j0: u32, lane: u32) {
    let i = i0 + lane / SHARE;
    let first = lane / SHARE * STEP_SCORES + lane % SHARE;
    let j = j0 + lane % SHARE * 4u;
    if (!HAS_MASK) {
        for (var e = 0u; e < OWN; e++) {
            let at = first + e * SHARE;
            tile_scores[at] = finished_four(p, i, j + e * SHARE * 4u, tile_scores[at], vec4<f32>());
        }
        return;
    }
    let line = biases_of(p, b, h, i);
    // Loads without branches are on their way together.
    if (has_whole_biases(p, j0)) {
        for (var e = 0u; e < OWN; e++) {
            let at = first + e * SHARE;
            let added = masked_word(line + j + e * SHARE * 4u);
            tile_scores[at] = finished_four(p, i, j + e * SHARE * 4u, tile_scores[at], added);
        }
        return;
    }
    let end = min(p.keys, p.mask_keys);
    for (var e = 0u; e < OWN; e++) {
        let at = first + e * SHARE;
        let added = masked_four(line, j + e * SHARE * 4u, end, p.mask_key);
        tile_scores[at] = finished_four(p, i, j + e * SHARE * 4u, tile_scores[at], added);
    }
}

fn is_nothing(top: f32) -> bool {
    return bitcast<u32>(top) == 0xff800000u;
}

// e^x or NaN, to the precision of weights in f16.
fn weight_of(x: f32) -> f32 {
    return select(exp2(max(x, -200.0) * 1.442695), x, is_nan(x));
}

struct Weighed {
    most: f32,
    sum: f32,
}

// Stores the weights of a thread's scores, these products times a factor, relative to a reference.
fn weights_of(lane: u32, factor: f32, top: f32) -> Weighed {
    let row = lane / SHARE;
    let base = select(top, 0.0, is_nothing(top));
    var most = top;
    var sum = 0.0;
    for (var e = 0u; e < OWN; e++) {
        let quad = lane % SHARE + e * SHARE;
        let v = tile_scores[row * STEP_SCORES + quad] * factor;
        most = max(most, max(max(v.x, v.y), max(v.z, v.w)));
        let x = v - vec4<f32>(base);
        let w = vec4<f32>(weight_of(x.x), weight_of(x.y), weight_of(x.z), weight_of(x.w));
        sum += (w.x + w.y) + (w.z + w.w);
        tile_weights[row * STEP_WEIGHTS + quad] = vec4<f16>(w);
    }
    return Weighed(most, sum);
}

// Multiplies the rows of a part of the results by the numbers that threads have found.
fn rescaled(part: Sums, place: u32, lane: u32) -> Sums {
    coopStoreT(part, &tile_scores[place], STEP_SCORES);
    workgroupBarrier();
    for (var e = lane; e < ROWS * SPLIT * PART / 4u; e += THREADS) {
        let row = e / (SPLIT * PART / 4u);
        let at = row * STEP_SCORES + e % (SPLIT * PART / 4u);
        tile_scores[at] = tile_scores[at] * found[row * SHARE];
    }
    workgroupBarrier();
    let scaled = coopLoadT<Sums>(&tile_scores[place], STEP_SCORES);
    workgroupBarrier();
    return scaled;
}

@compute @workgroup_size(THREADS)
fn attention_cooperative(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    // Written out, as naga takes what functions return for what threads do not share.
    let block = id.y * blocks.x + id.x;
    if (block >= grid()) {
        return;
    }
    let p = attention_params();
    let strips = (p.queries + ROWS - 1u) / ROWS;
    // Rows that see most keys come first.
    let i0 = (strips - 1u - block % strips) * ROWS;
    let h = block / strips % p.q_heads;
    let b = block / strips / p.q_heads;
    let kv = h * p.kv_heads / p.q_heads;
    let of_q = head_of(p.q_offset + b * p.q_batch + h * p.q_head, p.q_position, p.queries, p.size);
    let of_k = head_of(p.k_offset + b * p.k_batch + kv * p.k_head, p.k_position, p.keys, p.size);
    let of_v = head_of(p.v_offset + b * p.v_batch + kv * p.v_head, p.v_position, p.keys, p.v_size);
    // First row of a subgroup, and its place among those that share rows.
    let own = subgroup / SPLIT * PART;
    let side = subgroup % SPLIT;
    let first = first_key(i0);
    let end = end_key(p, i0);
    put_queries(of_q, i0, lane);
    if (lane == 0u) {
        grown = 0u;
        filled = 0u;
    }
    workgroupBarrier();
    var q0: PartA;
    var q1: PartA;
    var q2: PartA;
    var q3: PartA;
    var q4: PartA;
    var q5: PartA;
    var q6: PartA;
    var q7: PartA;
    var q8: PartA;
    var q9: PartA;
    var q10: PartA;
    var q11: PartA;
    var q12: PartA;
    var q13: PartA;
    var q14: PartA;
    var q15: PartA;
    q0 = coopLoadT<PartA>(&tile[own * STEP_HEAD], STEP_HEAD);
    if (HEAD > 1u * PART) {
        q1 = coopLoadT<PartA>(&tile[own * STEP_HEAD + PART / 4u], STEP_HEAD);
    }
    if (HEAD > 2u * PART) {
        q2 = coopLoadT<PartA>(&tile[own * STEP_HEAD + 2u * PART / 4u], STEP_HEAD);
    }
    if (HEAD > 3u * PART) {
        q3 = coopLoadT<PartA>(&tile[own * STEP_HEAD + 3u * PART / 4u], STEP_HEAD);
    }
    if (HEAD > 4u * PART) {
        q4 = coopLoadT<PartA>(&tile[own * STEP_HEAD + 4u * PART / 4u], STEP_HEAD);
    }
    if (HEAD > 5u * PART) {
        q5 = coopLoadT<PartA>(&tile[own * STEP_HEAD + 5u * PART / 4u], STEP_HEAD);
    }
    if (HEAD > 6u * PART) {
        q6 = coopLoadT<PartA>(&tile[own * STEP_HEAD + 6u * PART / 4u], STEP_HEAD);
    }
    if (HEAD > 7u * PART) {
        q7 = coopLoadT<PartA>(&tile[own * STEP_HEAD + 7u * PART / 4u], STEP_HEAD);
    }
    if (HEAD > 8u * PART) {
        q8 = coopLoadT<PartA>(&tile[own * STEP_HEAD + 8u * PART / 4u], STEP_HEAD);
    }
    if (HEAD > 9u * PART) {
        q9 = coopLoadT<PartA>(&tile[own * STEP_HEAD + 9u * PART / 4u], STEP_HEAD);
    }
    if (HEAD > 10u * PART) {
        q10 = coopLoadT<PartA>(&tile[own * STEP_HEAD + 10u * PART / 4u], STEP_HEAD);
    }
    if (HEAD > 11u * PART) {
        q11 = coopLoadT<PartA>(&tile[own * STEP_HEAD + 11u * PART / 4u], STEP_HEAD);
    }
    if (HEAD > 12u * PART) {
        q12 = coopLoadT<PartA>(&tile[own * STEP_HEAD + 12u * PART / 4u], STEP_HEAD);
    }
    if (HEAD > 13u * PART) {
        q13 = coopLoadT<PartA>(&tile[own * STEP_HEAD + 13u * PART / 4u], STEP_HEAD);
    }
    if (HEAD > 14u * PART) {
        q14 = coopLoadT<PartA>(&tile[own * STEP_HEAD + 14u * PART / 4u], STEP_HEAD);
    }
    if (HEAD > 15u * PART) {
        q15 = coopLoadT<PartA>(&tile[own * STEP_HEAD + 15u * PART / 4u], STEP_HEAD);
    }
    workgroupBarrier();
    for (var e = lane; e < QUADS; e += 8u * THREADS) {
        put_eight(0u, e, eight_of_k(of_k, first, e));
    }
    var o0: Sums;
    var o1: Sums;
    var o2: Sums;
    var o3: Sums;
    var o4: Sums;
    var o5: Sums;
    var o6: Sums;
    var o7: Sums;
    // The reference of this row, and the sum of the weights that this thread has found.
    var top = cf(0xff800000u);
    var sum = 0.0;
    workgroupBarrier();
    for (var j0 = first; j0 < end; j0 += KEYS) {
        for (var f = 0u; f < FRAGMENTS; f += 2u) {
            let column = (side * FRAGMENTS + f) * PART;
            let line = column * STEP_HEAD;
            let other = line + PART * STEP_HEAD;
            var s: Sums;
            var t: Sums;
            s = coopMultiplyAdd(q0, coopLoad<PartB>(&tile[line], STEP_HEAD), s);
            if (FRAGMENTS > 1u) {
                t = coopMultiplyAdd(q0, coopLoad<PartB>(&tile[other], STEP_HEAD), t);
            }
            if (HEAD > 1u * PART) {
                s = coopMultiplyAdd(q1, coopLoad<PartB>(&tile[line + PART / 4u], STEP_HEAD), s);
                if (FRAGMENTS > 1u) {
                    t = coopMultiplyAdd(q1, coopLoad<PartB>(&tile[other + PART / 4u], STEP_HEAD), t);
                }
            }
            if (HEAD > 2u * PART) {
                s = coopMultiplyAdd(q2, coopLoad<PartB>(&tile[line + 2u * PART / 4u], STEP_HEAD), s);
                if (FRAGMENTS > 1u) {
                    t = coopMultiplyAdd(q2, coopLoad<PartB>(&tile[other + 2u * PART / 4u], STEP_HEAD), t);
                }
            }
            if (HEAD > 3u * PART) {
                s = coopMultiplyAdd(q3, coopLoad<PartB>(&tile[line + 3u * PART / 4u], STEP_HEAD), s);
                if (FRAGMENTS > 1u) {
                    t = coopMultiplyAdd(q3, coopLoad<PartB>(&tile[other + 3u * PART / 4u], STEP_HEAD), t);
                }
            }
            if (HEAD > 4u * PART) {
                s = coopMultiplyAdd(q4, coopLoad<PartB>(&tile[line + 4u * PART / 4u], STEP_HEAD), s);
                if (FRAGMENTS > 1u) {
                    t = coopMultiplyAdd(q4, coopLoad<PartB>(&tile[other + 4u * PART / 4u], STEP_HEAD), t);
                }
            }
            if (HEAD > 5u * PART) {
                s = coopMultiplyAdd(q5, coopLoad<PartB>(&tile[line + 5u * PART / 4u], STEP_HEAD), s);
                if (FRAGMENTS > 1u) {
                    t = coopMultiplyAdd(q5, coopLoad<PartB>(&tile[other + 5u * PART / 4u], STEP_HEAD), t);
                }
            }
            if (HEAD > 6u * PART) {
                s = coopMultiplyAdd(q6, coopLoad<PartB>(&tile[line + 6u * PART / 4u], STEP_HEAD), s);
                if (FRAGMENTS > 1u) {
                    t = coopMultiplyAdd(q6, coopLoad<PartB>(&tile[other + 6u * PART / 4u], STEP_HEAD), t);
                }
            }
            if (HEAD > 7u * PART) {
                s = coopMultiplyAdd(q7, coopLoad<PartB>(&tile[line + 7u * PART / 4u], STEP_HEAD), s);
                if (FRAGMENTS > 1u) {
                    t = coopMultiplyAdd(q7, coopLoad<PartB>(&tile[other + 7u * PART / 4u], STEP_HEAD), t);
                }
            }
            if (HEAD > 8u * PART) {
                s = coopMultiplyAdd(q8, coopLoad<PartB>(&tile[line + 8u * PART / 4u], STEP_HEAD), s);
                if (FRAGMENTS > 1u) {
                    t = coopMultiplyAdd(q8, coopLoad<PartB>(&tile[other + 8u * PART / 4u], STEP_HEAD), t);
                }
            }
            if (HEAD > 9u * PART) {
                s = coopMultiplyAdd(q9, coopLoad<PartB>(&tile[line + 9u * PART / 4u], STEP_HEAD), s);
                if (FRAGMENTS > 1u) {
                    t = coopMultiplyAdd(q9, coopLoad<PartB>(&tile[other + 9u * PART / 4u], STEP_HEAD), t);
                }
            }
            if (HEAD > 10u * PART) {
                s = coopMultiplyAdd(q10, coopLoad<PartB>(&tile[line + 10u * PART / 4u], STEP_HEAD), s);
                if (FRAGMENTS > 1u) {
                    t = coopMultiplyAdd(q10, coopLoad<PartB>(&tile[other + 10u * PART / 4u], STEP_HEAD), t);
                }
            }
            if (HEAD > 11u * PART) {
                s = coopMultiplyAdd(q11, coopLoad<PartB>(&tile[line + 11u * PART / 4u], STEP_HEAD), s);
                if (FRAGMENTS > 1u) {
                    t = coopMultiplyAdd(q11, coopLoad<PartB>(&tile[other + 11u * PART / 4u], STEP_HEAD), t);
                }
            }
            if (HEAD > 12u * PART) {
                s = coopMultiplyAdd(q12, coopLoad<PartB>(&tile[line + 12u * PART / 4u], STEP_HEAD), s);
                if (FRAGMENTS > 1u) {
                    t = coopMultiplyAdd(q12, coopLoad<PartB>(&tile[other + 12u * PART / 4u], STEP_HEAD), t);
                }
            }
            if (HEAD > 13u * PART) {
                s = coopMultiplyAdd(q13, coopLoad<PartB>(&tile[line + 13u * PART / 4u], STEP_HEAD), s);
                if (FRAGMENTS > 1u) {
                    t = coopMultiplyAdd(q13, coopLoad<PartB>(&tile[other + 13u * PART / 4u], STEP_HEAD), t);
                }
            }
            if (HEAD > 14u * PART) {
                s = coopMultiplyAdd(q14, coopLoad<PartB>(&tile[line + 14u * PART / 4u], STEP_HEAD), s);
                if (FRAGMENTS > 1u) {
                    t = coopMultiplyAdd(q14, coopLoad<PartB>(&tile[other + 14u * PART / 4u], STEP_HEAD), t);
                }
            }
            if (HEAD > 15u * PART) {
                s = coopMultiplyAdd(q15, coopLoad<PartB>(&tile[line + 15u * PART / 4u], STEP_HEAD), s);
                if (FRAGMENTS > 1u) {
                    t = coopMultiplyAdd(q15, coopLoad<PartB>(&tile[other + 15u * PART / 4u], STEP_HEAD), t);
                }
            }
            coopStoreT(s, &tile_scores[own * STEP_SCORES + column / 4u], STEP_SCORES);
            if (FRAGMENTS > 1u) {
                coopStoreT(t, &tile_scores[own * STEP_SCORES + column / 4u + PART / 4u], STEP_SCORES);
            }
        }
        workgroupBarrier();
        // The next tiles are on their way while weights are computed.
        let next = j0 + KEYS;
        let more_v = eight_of_v(of_v, j0, lane);
        var more_k = Eight();
        if (next < end) {
            more_k = eight_of_k(of_k, next, lane);
        }
        var factor = p.scale;
        if (!sees_all(p, i0, j0)) {
            finish_scores(p, b, h, i0, j0, lane);
            factor = 1.0;
        }
        let weighed = weights_of(lane, factor, top);
        if (!is_nothing(weighed.most) && (is_nothing(top) || weighed.most > top + GROWTH)) {
            grown = 1u;
            if (!is_nothing(top)) {
                filled = 1u;
            }
        }
        put_eight(VALUES, lane, more_v);
        for (var e = lane + 8u * THREADS; e < QUADS; e += 8u * THREADS) {
            put_eight(VALUES, e, eight_of_v(of_v, j0, e));
        }
        if (next < end) {
            put_eight(0u, lane, more_k);
            for (var e = lane + 8u * THREADS; e < QUADS; e += 8u * THREADS) {
                put_eight(0u, e, eight_of_k(of_k, next, e));
            }
        }
        var added = weighed.sum;
        if (workgroupUniformLoad(&grown) != 0u) {
            found[lane] = weighed.most;
            workgroupBarrier();
            var raised = top;
            for (var t = lane / SHARE * SHARE; t < (lane / SHARE + 1u) * SHARE; t++) {
                raised = kmax(raised, found[t]);
            }
            // Sums that are not multiplied below keep their reference.
            if (!is_nothing(top) && !(raised > top + GROWTH)) {
                raised = top;
            }
            added = weights_of(lane, factor, raised).sum;
            var shrunk = 0.0;
            if (!is_nothing(top)) {
                shrunk = weight_of(top - raised);
            }
            sum *= shrunk;
            top = raised;
            if (workgroupUniformLoad(&filled) != 0u) {
                found[lane] = shrunk;
                workgroupBarrier();
                let place = own * STEP_SCORES + side * PART / 4u;
                o0 = rescaled(o0, place, lane);
                if (HEAD > 1u * SPLIT * PART) {
                    o1 = rescaled(o1, place, lane);
                }
                if (HEAD > 2u * SPLIT * PART) {
                    o2 = rescaled(o2, place, lane);
                }
                if (HEAD > 3u * SPLIT * PART) {
                    o3 = rescaled(o3, place, lane);
                }
                if (HEAD > 4u * SPLIT * PART) {
                    o4 = rescaled(o4, place, lane);
                }
                if (HEAD > 5u * SPLIT * PART) {
                    o5 = rescaled(o5, place, lane);
                }
                if (HEAD > 6u * SPLIT * PART) {
                    o6 = rescaled(o6, place, lane);
                }
                if (HEAD > 7u * SPLIT * PART) {
                    o7 = rescaled(o7, place, lane);
                }
            }
            workgroupBarrier();
            if (lane == 0u) {
                grown = 0u;
                filled = 0u;
            }
        }
        sum += added;
        for (var k = 0u; k < KEYS; k += PART) {
            let a = coopLoadT<PartA>(&tile_weights[own * STEP_WEIGHTS + k / 4u], STEP_WEIGHTS);
            let line = VALUES + k * STEP_HEAD + side * (HEAD / SPLIT / 4u);
            o0 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile[line], STEP_HEAD), o0);
            if (HEAD > 1u * SPLIT * PART) {
                o1 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile[line + PART / 4u], STEP_HEAD), o1);
            }
            if (HEAD > 2u * SPLIT * PART) {
                o2 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile[line + 2u * PART / 4u], STEP_HEAD), o2);
            }
            if (HEAD > 3u * SPLIT * PART) {
                o3 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile[line + 3u * PART / 4u], STEP_HEAD), o3);
            }
            if (HEAD > 4u * SPLIT * PART) {
                o4 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile[line + 4u * PART / 4u], STEP_HEAD), o4);
            }
            if (HEAD > 5u * SPLIT * PART) {
                o5 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile[line + 5u * PART / 4u], STEP_HEAD), o5);
            }
            if (HEAD > 6u * SPLIT * PART) {
                o6 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile[line + 6u * PART / 4u], STEP_HEAD), o6);
            }
            if (HEAD > 7u * SPLIT * PART) {
                o7 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile[line + 7u * PART / 4u], STEP_HEAD), o7);
            }
        }
    }
    // The sum of weights of the whole row.
    workgroupBarrier();
    found[lane] = sum;
    workgroupBarrier();
    sum = 0.0;
    for (var t = lane / SHARE * SHARE; t < (lane / SHARE + 1u) * SHARE; t++) {
        sum += found[t];
    }
    workgroupBarrier();
    found[lane] = sum;
    for (var g = 0u; g < HEAD / PART / SPLIT; g++) {
        var part = o0;
        if (g == 1u) {
            part = o1;
        } else if (g == 2u) {
            part = o2;
        } else if (g == 3u) {
            part = o3;
        } else if (g == 4u) {
            part = o4;
        } else if (g == 5u) {
            part = o5;
        } else if (g == 6u) {
            part = o6;
        } else if (g == 7u) {
            part = o7;
        }
        coopStoreT(part, &tile_scores[own * STEP_SCORES + side * PART / 4u], STEP_SCORES);
        workgroupBarrier();
        for (var e = lane; e < ROWS * SPLIT * PART / 4u; e += THREADS) {
            let row = e / (SPLIT * PART / 4u);
            let quad = e % (SPLIT * PART / 4u);
            let d = quad / (PART / 4u) * (HEAD / SPLIT) + g * PART + quad % (PART / 4u) * 4u;
            finish_results(p, b, h, i0 + row, d, tile_scores[row * STEP_SCORES + quad], found[row * SHARE]);
        }
        workgroupBarrier();
    }
}

// Stores four components of a result. The sum of weights is 0 where a query sees no key.
fn finish_results(p: AttentionParams, b: u32, h: u32, i: u32, d: u32, v: vec4<f32>, sum: f32) {
    if (i >= p.queries || d >= p.v_size) {
        return;
    }
    var r = v / sum;
    if ((bitcast<u32>(sum) & 0x7fffffffu) == 0u) {
        r = vec4<f32>(cf(select(0x7fc00000u, 0u, ZERO_EMPTY)));
    }
    let at = place(p, b, h, i, d, p.q_heads, p.queries, p.v_size);
    if (d + 4u <= p.v_size) {
        emit_four0(at, r);
        return;
    }
    for (var c = 0u; c < p.v_size - d; c++) {
        emit0(at + c, r[c]);
    }
}

// Stand-ins for what a generated module and the file of attention in passes define.

const PART: u32 = 16u;

const LANES: u32 = 32u;

const SUBGROUPS: u32 = 4u;

const HEAD: u32 = 64u;

const KEYS: u32 = 64u;

const SPLIT: u32 = 1u;

const HAS_MASK: bool = false;

alias PartA = coop_mat16x16<f16, A>;

alias PartB = coop_mat16x16<f16, B>;

alias Sums = coop_mat16x16<f32, C>;

const HIDES: bool = false;

const HIDDEN: u32 = 0u;

const LEFT: i32 = -1;

const RIGHT: i32 = -1;

const ZERO_EMPTY: bool = false;

fn quad0(at: u32) -> vec4<f16> {
    return vec4<f16>();
}

fn quad1(at: u32) -> vec4<f16> {
    return vec4<f16>();
}

fn quad2(at: u32) -> vec4<f16> {
    return vec4<f16>();
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn x1(at: u32) -> f32 {
    return 0.0;
}

fn x2(at: u32) -> f32 {
    return 0.0;
}

fn masked(at: u32) -> f32 {
    return 0.0;
}

fn masked_word(at: u32) -> vec4<f32> {
    return vec4<f32>();
}

fn masked_quad(at: u32, step: u32) -> vec4<f32> {
    return vec4<f32>();
}

fn capped(p: AttentionParams, x: f32) -> f32 {
    return x;
}

fn place(p: AttentionParams, b: u32, h: u32, s: u32, d: u32, heads: u32, len: u32, size: u32) -> u32 {
    return 0u;
}

fn emit0(at: u32, v: f32) {
}

fn emit_four0(at: u32, v: vec4<f32>) {
}

fn cf(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

fn is_nan(x: f32) -> bool {
    return false;
}

fn kmax(a: f32, b: f32) -> f32 {
    return max(a, b);
}

fn grid() -> u32 {
    return 1u;
}

struct AttentionParams {
    size: u32,
    v_size: u32,
    keys: u32,
    queries: u32,
    q_heads: u32,
    kv_heads: u32,
    batch: u32,
    past: u32,
    flat: u32,
    causal: u32,
    scale: f32,
    cap: f32,
    mask_keys: u32,
    mask_offset: u32,
    mask_batch: u32,
    mask_head: u32,
    mask_query: u32,
    mask_key: u32,
    q_offset: u32,
    q_batch: u32,
    q_head: u32,
    q_position: u32,
    k_offset: u32,
    k_batch: u32,
    k_head: u32,
    k_position: u32,
    v_offset: u32,
    v_batch: u32,
    v_head: u32,
    v_position: u32,
    past_k_offset: u32,
    past_k_batch: u32,
    past_k_head: u32,
    past_k_position: u32,
    past_v_offset: u32,
    past_v_batch: u32,
    past_v_head: u32,
    past_v_position: u32,
}

fn attention_params() -> AttentionParams {
    return AttentionParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
        word(6u),
        word(7u),
        word(8u),
        word(9u),
        bitcast<f32>(word(10u)),
        bitcast<f32>(word(11u)),
        word(12u),
        word(13u),
        word(14u),
        word(15u),
        word(16u),
        word(17u),
        word(18u),
        word(19u),
        word(20u),
        word(21u),
        word(22u),
        word(23u),
        word(24u),
        word(25u),
        word(26u),
        word(27u),
        word(28u),
        word(29u),
        word(30u),
        word(31u),
        word(32u),
        word(33u),
        word(34u),
        word(35u),
        word(36u),
        word(37u),
    );
}

fn word(k: u32) -> u32 {
    return k;
}
