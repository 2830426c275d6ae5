//! Problems for tensor cores whose parts are small: products of many small matrices, groups of few channels, planes of images.

use super::{BASE, Case, Tail, Window, build, matrix};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Op};

/// Batch of A and of B, rows, columns and depth, which operands are transposed, types, and what follows.
type Small = (&'static [usize], &'static [usize], [usize; 3], (bool, bool), (DType, DType), Tail);

const SMALL: &[Small] = &[
    (&[40], &[40], [27, 27, 64], (false, false), (DType::F16, DType::F16), Tail::Nothing),
    (&[35], &[35], [27, 27, 27], (false, false), (DType::F16, DType::F16), Tail::Nothing),
    (&[33], &[33], [49, 49, 32], (false, true), (DType::F16, DType::F16), Tail::Scaled),
    (&[33], &[33], [49, 32, 49], (false, false), (DType::BF16, DType::BF16), Tail::Biased),
    (&[5, 8], &[8], [16, 24, 40], (true, false), (DType::BF16, DType::BF16), Tail::Residual),
    (&[33], &[33], [9, 33, 20], (false, true), (DType::F32, DType::F32), Tail::Nothing),
    (&[34], &[34], [33, 9, 7], (true, false), (DType::F32, DType::F32), Tail::Biased),
    (&[36], &[1], [20, 12, 48], (true, true), (DType::I8, DType::I8), Tail::Nothing),
    (&[36], &[36], [5, 31, 19], (false, false), (DType::U8, DType::I8), Tail::Nothing),
    (&[32], &[32], [100, 120, 24], (true, true), (DType::F16, DType::F16), Tail::Nothing),
    (&[33], &[33], [27, 32, 64], (false, true), (DType::F8E4M3, DType::F8E4M3), Tail::Nothing),
    (&[70], &[70], [2, 3, 5], (true, false), (DType::F16, DType::F16), Tail::Scaled),
];

pub fn small_products(out: &mut Vec<Case>) {
    let mut rng = Rng::new(15);
    for &(of_a, of_b, [m, n, k], (ta, tb), (a, b), tail) in SMALL {
        let attrs = Attrs::new().with("trans_a", ta).with("trans_b", tb);
        let given = [matrix(&mut rng, a, of_a, m, k, ta), matrix(&mut rng, b, of_b, k, n, tb)];
        let label = format!("matmul small {a} {b} {m}x{n}x{k} {ta} {tb} {}", tail as u8);
        out.push(build(label, Op::new("matmul", attrs).unwrap(), &given, 2, tail, k));
    }
}

pub const WINDOWS: &[Window] = &[
    Window {
        label: "groups of 16",
        x: &[2, 9, 21, 64],
        w: &[64, 3, 3, 16],
        groups: 4,
        pads: &[1; 4],
        ..BASE
    },
    Window {
        label: "groups of 4",
        x: &[1, 13, 12, 32],
        w: &[32, 3, 2, 4],
        groups: 8,
        strides: &[2, 1],
        dilations: &[1, 2],
        pads: &[0, 1, 1, 0],
    },
    Window {
        label: "groups of 24 in 1-D",
        x: &[2, 37, 48],
        w: &[48, 5, 24],
        groups: 2,
        strides: &[2],
        ..BASE
    },
    Window {
        label: "groups of 8, wide",
        x: &[1, 20, 41, 32],
        w: &[32, 3, 3, 8],
        groups: 4,
        pads: &[2; 4],
        ..BASE
    },
    Window {
        label: "3-D of many channels",
        x: &[1, 2, 5, 6, 64],
        w: &[40, 2, 2, 2, 64],
        strides: &[1, 2, 1],
        pads: &[1, 1, 0, 0, 1, 1],
        ..BASE
    },
    Window {
        label: "3-D, strided and dilated planes",
        x: &[2, 4, 5, 6, 32],
        w: &[64, 3, 1, 2, 32],
        strides: &[2, 1, 1],
        dilations: &[2, 1, 3],
        pads: &[2, 0, 2, 1, 0, 1],
        ..BASE
    },
];
