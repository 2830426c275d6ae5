// Rows whose elements lie next to each other.

fn are_neighbours() -> bool {
    return true;
}

fn row_start(row: u32) -> u32 {
    return row * row_length();
}

fn element(base: u32, i: u32) -> u32 {
    return base + i;
}

fn row_at(at: u32) -> u32 {
    return at / row_length();
}

// Stand-ins for what a generated module defines.

fn row_length() -> u32 {
    return 1u;
}
