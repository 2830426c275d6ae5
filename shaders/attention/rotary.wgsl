// Rotary embedding: pairs of elements of a head turned by angles of a table. Inputs: x, cosines, sines, and rows of the table
// (`IDS`) if they are not those of the positions.

struct RotaryParams {
    heads: u32,
    positions: u32,
    of_batch: u32,
    size: u32,
    pairs: u32,
    rows: u32,
    flat: u32,
    interleaved: u32,
}

fn rotary_params() -> RotaryParams {
    return RotaryParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
        word(6u),
        word(7u),
    );
}

fn angle_row(p: RotaryParams, b: u32, s: u32) -> u32 {
    if (IDS) {
        let id = near3(b * p.positions + s);
        return u32(select(id, id + i32(p.rows), id < 0));
    }
    return b * p.of_batch + s;
}

fn rotary_embedding(at: u32) -> f32 {
    let p = rotary_params();
    let d = at % p.size;
    let s = select(at / p.size, at / p.size / p.heads, p.flat != 0u) % p.positions;
    let b = at / p.size / p.heads / p.positions;
    let half = p.pairs;
    if (d >= 2u * half) {
        return x0(at);
    }
    let mixed = p.interleaved != 0u;
    let pair = select(d % half, d / 2u, mixed);
    let second = select(d >= half, d % 2u == 1u, mixed);
    let distance = select(half, 1u, mixed);
    let row = angle_row(p, b, s);
    var c = 0.0;
    var z = 0.0;
    if (row < p.rows) {
        c = x1(row * half + pair);
        z = x2(row * half + pair);
    }
    if (second) {
        return z * x0(at - distance) + c * x0(at);
    }
    return c * x0(at) - z * x0(at + distance);
}

// Stand-ins for what a generated module defines.

const IDS: bool = false;

fn near3(at: u32) -> i32 {
    return 0;
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

fn word(k: u32) -> u32 {
    return k;
}
