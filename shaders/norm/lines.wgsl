// Rows along an axis, whose elements lie `inner` apart.

struct LineParams {
    count: u32,
    inner: u32,
}

fn line_params() -> LineParams {
    return LineParams(
        word(0u),
        word(1u),
    );
}

fn row_length() -> u32 {
    return line_params().count;
}

fn are_neighbours() -> bool {
    return line_params().inner == 1u;
}

fn row_start(row: u32) -> u32 {
    let p = line_params();
    return row / p.inner * p.count * p.inner + row % p.inner;
}

fn element(base: u32, i: u32) -> u32 {
    return base + i * line_params().inner;
}

fn row_at(at: u32) -> u32 {
    let p = line_params();
    return at / (p.count * p.inner) * p.inner + at % p.inner;
}

// Stand-ins for what a generated module defines.

fn word(k: u32) -> u32 {
    return k;
}
