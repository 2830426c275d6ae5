// A check of an element of an index input, given by the halves of its value: `fault` records it if it is out of range.

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

fn fault(input: u32, at: u32, low: u32, high: u32, least: u32, greatest: u32) {
}
