// Triangular filters from linear spectral bins to mel bands.

struct MelParams {
    bands: u32,
    bins: List,
    floats: List,
}

fn mel_params() -> MelParams {
    return MelParams(
        word(0u),
        List(word(1u), word(2u)),
        List(word(3u), word(4u)),
    );
}

// From one bin to another, exact where both are integers of 30 bits.
fn bins_between(low: i32, low_float: f32, high: i32, high_float: f32) -> f32 {
    if (abs(low) < 1073741824 && abs(high) < 1073741824) {
        return f32(high - low);
    }
    return high_float - low_float;
}

fn edges_between(p: MelParams, a: u32, b: u32) -> f32 {
    return bins_between(item_i32(p.bins, a), item_f32(p.floats, a), item_i32(p.bins, b), item_f32(p.floats, b));
}

fn mel_weight(at: u32) -> f32 {
    let p = mel_params();
    let band = at % p.bands;
    let j = i32(at / p.bands);
    let low = item_i32(p.bins, band);
    let center = item_i32(p.bins, band + 1u);
    let high = item_i32(p.bins, band + 2u);
    if (center <= j && j < high) {
        return bins_between(j, f32(j), high, item_f32(p.floats, band + 2u)) / edges_between(p, band + 1u, band + 2u);
    }
    if (low == center) {
        return select(0.0, 1.0, j == center);
    }
    if (low <= j && j <= center) {
        return bins_between(low, item_f32(p.floats, band), j, f32(j)) / edges_between(p, band, band + 1u);
    }
    return 0.0;
}

fn mel_filter(at: u32) -> Value {
    return converted(mel_weight(at));
}

// Stand-ins for what a generated module defines.

alias Value = f32;

fn converted(v: f32) -> Value {
    return v;
}

struct List {
    first: u32,
    count: u32,
}

fn item_i32(list: List, i: u32) -> i32 {
    return i32(i);
}

fn item_f32(list: List, i: u32) -> f32 {
    return f32(i);
}

fn word(k: u32) -> u32 {
    return k;
}
