// Grids of coordinates that matrices move. ALIGN says whether -1 and 1 are the centres of the outermost elements.

struct AffineGridParams {
    sizes: List,
}

fn affine_grid_params() -> AffineGridParams {
    return AffineGridParams(
        List(word(0u), word(1u)),
    );
}

fn coordinate(n: u32, i: u32) -> f32 {
    if (ALIGN) {
        return select(2.0 * f32(i) / f32(n - 1u) - 1.0, -1.0, n <= 1u);
    }
    return f32(2u * i + 1u) / f32(n) - 1.0;
}

fn affine_grid(at: u32) -> f32 {
    let p = affine_grid_params();
    let r = p.sizes.count;
    let row = at % r;
    var rest = at / r;
    var place: array<u32, 3>;
    for (var d = r; d > 0u; d--) {
        let n = item(p.sizes, d - 1u);
        place[d - 1u] = rest % n;
        rest = rest / n;
    }
    let matrix = (rest * r + row) * (r + 1u);
    var sum = x0(matrix + r);
    for (var c = 0u; c < r; c++) {
        let d = r - 1u - c;
        sum += x0(matrix + c) * coordinate(item(p.sizes, d), place[d]);
    }
    return sum;
}

// Stand-ins for what a generated module defines.

fn word(k: u32) -> u32 {
    return k;
}

struct List {
    first: u32,
    count: u32,
}

fn item(list: List, i: u32) -> u32 {
    return list.first + i;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

const ALIGN: bool = false;
