// A check of an element of an index input, given by the halves of its value.

struct IndexCheckParams {
    least: List,
    greatest: List,
    excepted: u32,
    except_low: u32,
    except_high: u32,
}

fn index_check_params() -> IndexCheckParams {
    return IndexCheckParams(
        List(word(0u), word(1u)),
        List(word(2u), word(3u)),
        word(4u),
        word(5u),
        word(6u),
    );
}

// Records an element, unless the step has a record.
fn fault(input: u32, at: u32, low: u32, high: u32, least: u32, greatest: u32) {
    let to = step_number() * 8u;
    if (atomicExchange(&faults[to], 1u) == 0u) {
        atomicStore(&faults[to + 1u], input);
        atomicStore(&faults[to + 2u], at);
        atomicStore(&faults[to + 3u], low);
        atomicStore(&faults[to + 4u], high);
        atomicStore(&faults[to + 5u], least);
        atomicStore(&faults[to + 6u], greatest);
    }
}

fn check_index(input: u32, at: u32, low: u32, high: u32) {
    let p = index_check_params();
    let v = bitcast<i32>(low);
    let least = item_i32(p.least, at % p.least.count);
    let greatest = item_i32(p.greatest, at % p.greatest.count);
    let wide = high != select(0u, 0xffffffffu, v < 0);
    let excepted = p.excepted != 0u && low == p.except_low && high == p.except_high;
    if ((wide || v < least || v > greatest) && !excepted) {
        fault(input, at, low, high, bitcast<u32>(least), bitcast<u32>(greatest));
    }
}

// Stand-ins for what a generated module defines.

struct List {
    first: u32,
    count: u32,
}

fn word(k: u32) -> u32 {
    return k;
}

fn item_i32(list: List, i: u32) -> i32 {
    return 0;
}

fn step_number() -> u32 {
    return 0u;
}

@group(0) @binding(1) var<storage, read_write> faults: array<atomic<u32>>;
