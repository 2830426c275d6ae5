enable f16;
enable wgpu_cooperative_matrix;

// Attention by cooperative matrices. A workgroup of SUBGROUPS subgroups of LANES threads has ROWS queries of a head, and a subgroup PART of
// them. Scores are computed twice, for KEYS keys at a time: first for the greatest score and the sum of weights of each query, then
// for the weights, whose products with the values are summed at once. Nothing but results goes through memory.

const THREADS: u32 = SUBGROUPS * LANES;

const ROWS: u32 = SUBGROUPS * PART;

// Lines of f16 in workgroup memory, in quads: four neighbours. Two more quads follow, so that the rows of a part begin in
// different banks.
const STEP_HEAD: u32 = HEAD / 4u + 2u;

const STEP_WEIGHTS: u32 = KEYS / 4u + 2u;

const STEP_SCORES: u32 = KEYS / 4u + 1u;

var<workgroup> tile_q: array<vec4<f16>, ROWS * STEP_HEAD>;

// Keys, or values.
var<workgroup> tile_kv: array<vec4<f16>, KEYS * STEP_HEAD>;

var<workgroup> tile_scores: array<vec4<f32>, ROWS * STEP_SCORES>;

var<workgroup> tile_weights: array<vec4<f16>, ROWS * STEP_WEIGHTS>;

// The greatest score and the sum of weights that each thread finds, then those of each row.
var<workgroup> found_tops: array<f32, THREADS>;

var<workgroup> found_sums: array<f32, THREADS>;

// Threads of a row.
const SHARE: u32 = LANES / PART;

// Quads of scores of a thread.
const OWN: u32 = KEYS / 4u / SHARE;

// The place of position 0 of a head in an input.
struct Head {
    first: u32,
    step: u32,
    whole: bool,
}

fn head_of(first: u32, step: u32, size: u32) -> Head {
    return Head(first, step, ((first | step | size) & 3u) == 0u);
}

fn quad_of_q(h: Head, i: u32, count: u32, d: u32, size: u32) -> vec4<f16> {
    var v = vec4<f16>();
    if (i >= count || d >= size) {
        return v;
    }
    let at = h.first + i * h.step + d;
    if (h.whole) {
        return quad0(at);
    }
    for (var c = 0u; c < min(4u, size - d); c++) {
        v[c] = f16(x0(at + c));
    }
    return v;
}

fn quad_of_k(h: Head, i: u32, count: u32, d: u32, size: u32) -> vec4<f16> {
    var v = vec4<f16>();
    if (i >= count || d >= size) {
        return v;
    }
    let at = h.first + i * h.step + d;
    if (h.whole) {
        return quad1(at);
    }
    for (var c = 0u; c < min(4u, size - d); c++) {
        v[c] = f16(x1(at + c));
    }
    return v;
}

fn quad_of_v(h: Head, i: u32, count: u32, d: u32, size: u32) -> vec4<f16> {
    var v = vec4<f16>();
    if (i >= count || d >= size) {
        return v;
    }
    let at = h.first + i * h.step + d;
    if (h.whole) {
        return quad2(at);
    }
    for (var c = 0u; c < min(4u, size - d); c++) {
        v[c] = f16(x2(at + c));
    }
    return v;
}

fn put_queries(p: AttentionParams, h: Head, i0: u32, lane: u32) {
    for (var e = lane; e < ROWS * HEAD / 4u; e += THREADS) {
        let i = e / (HEAD / 4u);
        let d = e % (HEAD / 4u);
        tile_q[i * STEP_HEAD + d] = quad_of_q(h, i0 + i, p.queries, d * 4u, p.size);
    }
}

fn put_keys(p: AttentionParams, h: Head, j0: u32, lane: u32) {
    for (var e = lane; e < KEYS * HEAD / 4u; e += THREADS) {
        let j = e / (HEAD / 4u);
        let d = e % (HEAD / 4u);
        tile_kv[j * STEP_HEAD + d] = quad_of_k(h, j0 + j, p.keys, d * 4u, p.size);
    }
}

fn put_values(p: AttentionParams, h: Head, j0: u32, lane: u32) {
    for (var e = lane; e < KEYS * HEAD / 4u; e += THREADS) {
        let j = e / (HEAD / 4u);
        let d = e % (HEAD / 4u);
        tile_kv[j * STEP_HEAD + d] = quad_of_v(h, j0 + j, p.keys, d * 4u, p.v_size);
    }
}

// A score from the product of a query and a key.
fn finished_score(p: AttentionParams, b: u32, h: u32, i: u32, j: u32, product: f32) -> f32 {
    if (j >= p.keys) {
        return cf(0xff800000u);
    }
    let added = bias(p, b, h, min(i, p.queries - 1u), j);
    if (is_inf(added) && added < 0.0) {
        return added;
    }
    // Only what is hidden behind a number has a bias above 0.
    if (HIDES && added > 0.0) {
        return cf(HIDDEN);
    }
    return capped(p, product * p.scale) + added;
}

// Quad e of those of a thread.
fn finished_four(p: AttentionParams, b: u32, h: u32, i0: u32, j0: u32, lane: u32, e: u32) -> vec4<f32> {
    let row = lane / SHARE;
    let quad = lane % SHARE * OWN + e;
    let products = tile_scores[row * STEP_SCORES + quad];
    let j = j0 + quad * 4u;
    return vec4<f32>(
        finished_score(p, b, h, i0 + row, j, products.x),
        finished_score(p, b, h, i0 + row, j + 1u, products.y),
        finished_score(p, b, h, i0 + row, j + 2u, products.z),
        finished_score(p, b, h, i0 + row, j + 3u, products.w),
    );
}

// e^x for x <= 0 or NaN, to the precision of weights in f16.
fn weight_of(x: f32) -> f32 {
    return select(exp2(max(x, -200.0) * 1.442695), x, is_nan(x));
}

fn is_nothing(top: f32) -> bool {
    return bitcast<u32>(top) == 0xff800000u;
}

// Keys that some query of the block sees.
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
    let queries = head_of(p.q_offset + b * p.q_batch + h * p.q_head, p.q_position, p.size);
    let keys = head_of(p.k_offset + b * p.k_batch + kv * p.k_head, p.k_position, p.size);
    let values = head_of(p.v_offset + b * p.v_batch + kv * p.v_head, p.v_position, p.v_size);
    let own = subgroup * PART;
    let first = first_key(i0);
    let end = end_key(p, i0);
    put_queries(p, queries, i0, lane);
    var top = cf(0xff800000u);
    var sum = 0.0;
    for (var j0 = first; j0 < end; j0 += KEYS) {
        put_keys(p, keys, j0, lane);
        workgroupBarrier();
        var s0: Sums;
        var s1: Sums;
        var s2: Sums;
        var s3: Sums;
        for (var d = 0u; d < HEAD / 4u; d += PART / 4u) {
            let a = coopLoadT<PartA>(&tile_q[own * STEP_HEAD + d], STEP_HEAD);
            s0 = coopMultiplyAdd(a, coopLoad<PartB>(&tile_kv[d], STEP_HEAD), s0);
            s1 = coopMultiplyAdd(a, coopLoad<PartB>(&tile_kv[PART * STEP_HEAD + d], STEP_HEAD), s1);
            if (KEYS > 2u * PART) {
                s2 = coopMultiplyAdd(a, coopLoad<PartB>(&tile_kv[2u * PART * STEP_HEAD % (KEYS * STEP_HEAD) + d], STEP_HEAD), s2);
                s3 = coopMultiplyAdd(a, coopLoad<PartB>(&tile_kv[3u * PART * STEP_HEAD % (KEYS * STEP_HEAD) + d], STEP_HEAD), s3);
            }
        }
        coopStoreT(s0, &tile_scores[own * STEP_SCORES], STEP_SCORES);
        coopStoreT(s1, &tile_scores[own * STEP_SCORES + PART / 4u], STEP_SCORES);
        if (KEYS > 2u * PART) {
            coopStoreT(s2, &tile_scores[own * STEP_SCORES + 2u * PART / 4u], STEP_SCORES);
            coopStoreT(s3, &tile_scores[own * STEP_SCORES + 3u * PART / 4u], STEP_SCORES);
        }
        workgroupBarrier();
        var most = top;
        for (var e = 0u; e < OWN; e++) {
            let v = finished_four(p, b, h, i0, j0, lane, e);
            tile_scores[lane / SHARE * STEP_SCORES + lane % SHARE * OWN + e] = v;
            most = kmax(most, kmax(kmax(v.x, v.y), kmax(v.z, v.w)));
        }
        if (!is_nothing(most)) {
            sum *= weight_of(top - most);
            for (var e = 0u; e < OWN; e++) {
                let v = tile_scores[lane / SHARE * STEP_SCORES + lane % SHARE * OWN + e] - vec4<f32>(most);
                sum += (weight_of(v.x) + weight_of(v.y)) + (weight_of(v.z) + weight_of(v.w));
            }
            top = most;
        }
    }
    found_tops[lane] = top;
    found_sums[lane] = sum;
    workgroupBarrier();
    // Maximum and sum of the whole row.
    for (var t = lane / SHARE * SHARE; t < (lane / SHARE + 1u) * SHARE; t++) {
        top = kmax(top, found_tops[t]);
    }
    sum = 0.0;
    let nothing = is_nothing(top);
    if (!nothing) {
        for (var t = lane / SHARE * SHARE; t < (lane / SHARE + 1u) * SHARE; t++) {
            sum += found_sums[t] * weight_of(found_tops[t] - top);
        }
    }
    workgroupBarrier();
    found_sums[lane] = sum;
    var o0: Sums;
    var o1: Sums;
    var o2: Sums;
    var o3: Sums;
    var o4: Sums;
    var o5: Sums;
    var o6: Sums;
    var o7: Sums;
    var o8: Sums;
    var o9: Sums;
    var o10: Sums;
    var o11: Sums;
    var o12: Sums;
    var o13: Sums;
    var o14: Sums;
    var o15: Sums;
    for (var j0 = first; j0 < end; j0 += KEYS) {
        put_keys(p, keys, j0, lane);
        workgroupBarrier();
        var s0: Sums;
        var s1: Sums;
        var s2: Sums;
        var s3: Sums;
        for (var d = 0u; d < HEAD / 4u; d += PART / 4u) {
            let a = coopLoadT<PartA>(&tile_q[own * STEP_HEAD + d], STEP_HEAD);
            s0 = coopMultiplyAdd(a, coopLoad<PartB>(&tile_kv[d], STEP_HEAD), s0);
            s1 = coopMultiplyAdd(a, coopLoad<PartB>(&tile_kv[PART * STEP_HEAD + d], STEP_HEAD), s1);
            if (KEYS > 2u * PART) {
                s2 = coopMultiplyAdd(a, coopLoad<PartB>(&tile_kv[2u * PART * STEP_HEAD % (KEYS * STEP_HEAD) + d], STEP_HEAD), s2);
                s3 = coopMultiplyAdd(a, coopLoad<PartB>(&tile_kv[3u * PART * STEP_HEAD % (KEYS * STEP_HEAD) + d], STEP_HEAD), s3);
            }
        }
        coopStoreT(s0, &tile_scores[own * STEP_SCORES], STEP_SCORES);
        coopStoreT(s1, &tile_scores[own * STEP_SCORES + PART / 4u], STEP_SCORES);
        if (KEYS > 2u * PART) {
            coopStoreT(s2, &tile_scores[own * STEP_SCORES + 2u * PART / 4u], STEP_SCORES);
            coopStoreT(s3, &tile_scores[own * STEP_SCORES + 3u * PART / 4u], STEP_SCORES);
        }
        workgroupBarrier();
        for (var e = 0u; e < OWN; e++) {
            let v = finished_four(p, b, h, i0, j0, lane, e) - vec4<f32>(top);
            var w = vec4<f32>();
            if (!nothing) {
                w = vec4<f32>(weight_of(v.x), weight_of(v.y), weight_of(v.z), weight_of(v.w));
            }
            tile_weights[lane / SHARE * STEP_WEIGHTS + lane % SHARE * OWN + e] = vec4<f16>(w);
        }
        put_values(p, values, j0, lane);
        workgroupBarrier();
        for (var k = 0u; k < KEYS; k += PART) {
            let a = coopLoadT<PartA>(&tile_weights[own * STEP_WEIGHTS + k / 4u], STEP_WEIGHTS);
            let line = k * STEP_HEAD;
            o0 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line], STEP_HEAD), o0);
            o1 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line + 1u * PART / 4u], STEP_HEAD), o1);
            o2 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line + 2u * PART / 4u], STEP_HEAD), o2);
            o3 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line + 3u * PART / 4u], STEP_HEAD), o3);
            if (HEAD > 4u * PART) {
                o4 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line + 4u * PART / 4u], STEP_HEAD), o4);
                o5 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line + 5u * PART / 4u], STEP_HEAD), o5);
                o6 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line + 6u * PART / 4u], STEP_HEAD), o6);
                o7 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line + 7u * PART / 4u], STEP_HEAD), o7);
            }
            if (HEAD > 8u * PART) {
                o8 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line + 8u * PART / 4u], STEP_HEAD), o8);
                o9 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line + 9u * PART / 4u], STEP_HEAD), o9);
                o10 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line + 10u * PART / 4u], STEP_HEAD), o10);
                o11 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line + 11u * PART / 4u], STEP_HEAD), o11);
                o12 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line + 12u * PART / 4u], STEP_HEAD), o12);
                o13 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line + 13u * PART / 4u], STEP_HEAD), o13);
                o14 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line + 14u * PART / 4u], STEP_HEAD), o14);
                o15 = coopMultiplyAdd(a, coopLoadT<PartB>(&tile_kv[line + 15u * PART / 4u], STEP_HEAD), o15);
            }
        }
        workgroupBarrier();
    }
    workgroupBarrier();
    for (var g = 0u; g < HEAD / PART / 2u; g++) {
        var left = o0;
        var right = o1;
        if (g == 1u) {
            left = o2;
            right = o3;
        } else if (g == 2u) {
            left = o4;
            right = o5;
        } else if (g == 3u) {
            left = o6;
            right = o7;
        } else if (g == 4u) {
            left = o8;
            right = o9;
        } else if (g == 5u) {
            left = o10;
            right = o11;
        } else if (g == 6u) {
            left = o12;
            right = o13;
        } else if (g == 7u) {
            left = o14;
            right = o15;
        }
        coopStoreT(left, &tile_scores[own * STEP_SCORES], STEP_SCORES);
        coopStoreT(right, &tile_scores[own * STEP_SCORES + PART / 4u], STEP_SCORES);
        workgroupBarrier();
        for (var e = lane; e < ROWS * PART / 2u; e += THREADS) {
            let row = e / (PART / 2u);
            let quad = e % (PART / 2u);
            finish_results(p, b, h, i0 + row, (g * 2u * PART) + quad * 4u, tile_scores[row * STEP_SCORES + quad], found_sums[row * SHARE]);
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

fn bias(p: AttentionParams, b: u32, h: u32, i: u32, j: u32) -> f32 {
    return 0.0;
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

fn is_inf(x: f32) -> bool {
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
