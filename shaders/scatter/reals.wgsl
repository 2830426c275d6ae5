// Sums of floats in integers of 64 bits, relative to the greatest exponent of a place's updates, with 36 bits at least below the greatest
// update. HALVES are in units of 2^-24 throughout, in which they are integers. A place has three words: the sum, and the exponent with
// a bit for infinities of each sign. Words of all places follow each other, so that neighbouring threads combine neighbouring words.

struct ScatterSlotsParams {
    updates: u32,
    slice: u32,
    size: u32,
    stride: u32,
    spare: u32,
    results: u32,
    sizes: List,
    strides: List,
}

fn scatter_slots_params() -> ScatterSlotsParams {
    return ScatterSlotsParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
        List(word(6u), word(7u)),
        List(word(8u), word(9u)),
    );
}

const POSITIVE: u32 = 0x40000000u;

const NEGATIVE: u32 = 0x80000000u;

const EXPONENT: u32 = 0xffffu;

// The exponent of a finite float, at least that of subnormal ones.
fn exponent_of(v: f32) -> u32 {
    return max((bitcast<u32>(v) >> 23u) & 0xffu, 1u);
}

fn is_zero(v: f32) -> bool {
    return (bitcast<u32>(v) & 0x7fffffffu) == 0u;
}

// The word of a place's exponent.
fn exponent_at(place: u32) -> u32 {
    return place + 2u * scatter_slots_params().results;
}

fn put_special(at: u32, v: f32) {
    let infinity = select(NEGATIVE, POSITIVE, v > 0.0);
    atomicOr(&scratch[at], select(infinity, POSITIVE | NEGATIVE, is_nan(v)));
}

@compute @workgroup_size(64)
fn raise_exponents(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let place = place_of(t);
    let v = x2(t);
    if (place == NOWHERE || is_zero(v)) {
        return;
    }
    let at = exponent_at(place);
    if (is_nan(v) || is_inf(v)) {
        put_special(at, v);
    } else if ((atomicLoad(&scratch[at]) & EXPONENT) < exponent_of(v)) {
        atomicMax(&scratch[at], exponent_of(v));
    }
}

// The number of bits by which the digits of a finite float are moved up.
fn places_up(place: u32, v: f32) -> i32 {
    if (HALVES) {
        return i32(exponent_of(v)) - 126;
    }
    let found = i32(atomicLoad(&scratch[exponent_at(place)]) & EXPONENT);
    return 36 - i32(scatter_slots_params().spare) - (found - i32(exponent_of(v)));
}

// Adds a finite float in units of 2^(greatest - 186 + spare), to the nearest.
fn put_real(place: u32, t: u32) {
    let v = x2(t);
    if (is_zero(v)) {
        return;
    }
    if (is_nan(v) || is_inf(v)) {
        if (HALVES) {
            put_special(exponent_at(place), v);
        }
        return;
    }
    let bits = bitcast<u32>(v);
    let digits = (bits & 0x7fffffu) | select(0u, 0x800000u, (bits & 0x7f800000u) != 0u);
    let up = places_up(place, v);
    var low = 0u;
    var high = 0u;
    if (up >= 32) {
        high = digits << u32(up - 32);
    } else if (up > 0) {
        low = digits << u32(up);
        high = digits >> u32(32 - up);
    } else if (up == 0) {
        low = digits;
    } else if (up > -26) {
        low = (digits + (1u << u32(-up - 1))) >> u32(-up);
    }
    if ((bits >> 31u) != 0u) {
        high = ~high + select(0u, 1u, low == 0u);
        low = 0u - low;
    }
    add_wide(place, low, high);
}

fn power_of_two(e: i32) -> f32 {
    return bitcast<f32>(u32(e + 127) << 23u);
}

// x and the sum of a place.
fn real_of(at: u32) -> f32 {
    let found = atomicLoad(&scratch[exponent_at(at)]);
    let x = x0(at);
    let flags = found & (POSITIVE | NEGATIVE);
    if (flags == (POSITIVE | NEGATIVE)) {
        return cf(0x7fc00000u);
    }
    if (flags != 0u) {
        return x + cf(select(0xff800000u, 0x7f800000u, flags == POSITIVE));
    }
    var low = atomicLoad(&scratch[at]);
    var high = atomicLoad(&scratch[high_of(at)]);
    if (low == 0u && high == 0u) {
        return x;
    }
    let negative = (high >> 31u) != 0u;
    if (negative) {
        high = ~high + select(0u, 1u, low == 0u);
        low = 0u - low;
    }
    let units = f32(high) * 4294967296.0 + f32(low);
    let e = select(i32(found & EXPONENT) - 186 + i32(scatter_slots_params().spare), -24, HALVES);
    let sum = units * power_of_two(e / 2) * power_of_two(e - e / 2);
    return x + select(sum, -sum, negative);
}

// Stand-ins for what a generated module and the other files of scatters define.

const NOWHERE: u32 = 0xffffffffu;

fn place_of(update: u32) -> u32 {
    return update;
}

const HALVES: bool = false;

fn high_of(place: u32) -> u32 {
    return place;
}

fn add_wide(place: u32, low: u32, high: u32) {
}

@group(0) @binding(1) var<storage, read_write> scratch: array<atomic<u32>>;

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn x2(at: u32) -> f32 {
    return 0.0;
}

fn cf(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

fn is_nan(v: f32) -> bool {
    return false;
}

fn is_inf(v: f32) -> bool {
    return false;
}

struct List {
    first: u32,
    count: u32,
}

fn word(k: u32) -> u32 {
    return k;
}

fn grid() -> u32 {
    return 1u;
}

fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x;
}
