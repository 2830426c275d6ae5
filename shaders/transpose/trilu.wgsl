// The triangle of matrices above (`UPPER`) or below a diagonal.

struct TriluParams {
    rows: u32,
    columns: u32,
    diagonal: i32,
}

fn trilu_params() -> TriluParams {
    return TriluParams(
        word(0u),
        word(1u),
        bitcast<i32>(word(2u)),
    );
}

fn trilu(at: u32) -> Value {
    let p = trilu_params();
    let d = i32(at % p.columns) - i32(at / p.columns % p.rows);
    if (select(d <= p.diagonal, d >= p.diagonal, UPPER)) {
        return x0(at);
    }
    return GAP;
}

// Stand-ins for what a generated module defines.

alias Value = f32;
const GAP: Value = 0.0;
const UPPER: bool = true;

fn x0(at: u32) -> Value {
    return 0.0;
}

fn word(k: u32) -> u32 {
    return k;
}
