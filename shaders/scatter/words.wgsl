// Words of places that updates are combined in, by what is wanted of them: the number of the last update, an integer, two words of an
// integer.

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

// The last update of a place counts, for TUPLES of a whole slice.
fn update_step() -> u32 {
    return select(1u, scatter_slots_params().slice, TUPLES && LAST);
}

fn put_last(place: u32, t: u32) {
    atomicMax(&scratch[place / update_step()], t + 1u);
}

fn last_of(at: u32) -> Value {
    let step = update_step();
    let found = atomicLoad(&scratch[at / step]);
    if (found == 0u) {
        return x0(at);
    }
    return x2((found - 1u) * step + at % step);
}

fn put_sum(place: u32, t: u32) {
    atomicAdd(&scratch[place], bits_of(x2(t)));
}

fn put_product(place: u32, t: u32) {
    let by = bits_of(x2(t));
    var old = atomicLoad(&scratch[place]);
    loop {
        let r = atomicCompareExchangeWeak(&scratch[place], old, old * by);
        if (r.exchanged) {
            break;
        }
        old = r.old_value;
    }
}

// The greatest rank of a place; 0 says that there is none, or is the worst.
fn put_extremum(place: u32, t: u32) {
    atomicMax(&scratch[place], rank_of(x2(t)));
}

fn word_of(at: u32) -> u32 {
    return atomicLoad(&scratch[at]);
}

// Numbers in the order in which the first ones lose.
fn float_rank(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let order = select(bits | 0x80000000u, ~bits, (bits >> 31u) != 0u);
    return select(select(order, ~order, LEAST), NOWHERE, is_nan(v));
}

fn float_of_rank(rank: u32) -> f32 {
    let order = select(rank, ~rank, LEAST);
    let bits = select(~order, order & 0x7fffffffu, (order >> 31u) != 0u);
    return bitcast<f32>(select(bits, 0x7fc00000u, rank == NOWHERE));
}

fn integer_rank(v: i32) -> u32 {
    let order = bitcast<u32>(v) ^ 0x80000000u;
    return select(order, ~order, LEAST);
}

fn integer_of_rank(rank: u32) -> i32 {
    return bitcast<i32>(select(rank, ~rank, LEAST) ^ 0x80000000u);
}

// The upper word of a place of two, which follows the lower ones of all places.
fn high_of(place: u32) -> u32 {
    return place + scatter_slots_params().results;
}

// Adds a number of 64 bits to the two words of a place. The upper one seldom changes by numbers of few bits.
fn add_wide(place: u32, low: u32, high: u32) {
    let old = atomicAdd(&scratch[place], low);
    let change = high + select(0u, 1u, old + low < old);
    if (change != 0u) {
        atomicAdd(&scratch[high_of(place)], change);
    }
}

// Stand-ins for what a generated module and the file of places define.

const TUPLES: bool = false;

const LAST: bool = true;

const LEAST: bool = false;

const NOWHERE: u32 = 0xffffffffu;

@group(0) @binding(1) var<storage, read_write> scratch: array<atomic<u32>>;

alias Value = f32;

fn x0(at: u32) -> Value {
    return Value();
}

fn x2(at: u32) -> Value {
    return Value();
}

fn bits_of(v: Value) -> u32 {
    return bitcast<u32>(v);
}

fn rank_of(v: Value) -> u32 {
    return bitcast<u32>(v);
}

fn is_nan(v: f32) -> bool {
    return false;
}

struct List {
    first: u32,
    count: u32,
}

fn word(k: u32) -> u32 {
    return k;
}
