//! Test problems of `conv`.

use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::problem::{Problem, Rng};

struct Case {
    label: &'static str,
    x: &'static [usize],
    w: &'static [usize],
    strides: &'static [i64],
    pads: &'static [i64],
    dilations: &'static [i64],
    groups: i64,
    mode: &'static str,
}

const BASE: Case =
    Case { label: "", x: &[], w: &[], strides: &[], pads: &[], dilations: &[], groups: 1, mode: "explicit" };

const CASES: &[Case] = &[
    Case { label: "3x3, padded", x: &[2, 5, 9, 7], w: &[6, 5, 3, 3], pads: &[1, 1, 1, 1], ..BASE },
    Case { label: "1x1", x: &[1, 19, 5, 7], w: &[33, 19, 1, 1], ..BASE },
    Case {
        label: "strides, asymmetric pads",
        x: &[2, 3, 11, 8],
        w: &[4, 3, 3, 2],
        strides: &[2, 3],
        pads: &[2, 0, 1, 3],
        ..BASE
    },
    Case {
        label: "dilated groups",
        x: &[1, 6, 13, 12],
        w: &[4, 3, 3, 3],
        dilations: &[3, 2],
        groups: 2,
        ..BASE
    },
    Case {
        label: "depthwise",
        x: &[2, 7, 8, 9],
        w: &[7, 1, 3, 3],
        groups: 7,
        pads: &[1, 1, 1, 1],
        strides: &[2, 2],
        ..BASE
    },
    Case {
        label: "depthwise with multiplier",
        x: &[1, 3, 6, 6],
        w: &[6, 1, 5, 5],
        groups: 3,
        mode: "same_upper",
        ..BASE
    },
    Case {
        label: "same_lower, even kernel",
        x: &[1, 2, 7, 6],
        w: &[3, 2, 4, 2],
        strides: &[2, 2],
        mode: "same_lower",
        ..BASE
    },
    Case {
        label: "round up",
        x: &[1, 2, 8, 8],
        w: &[3, 2, 3, 3],
        strides: &[2, 2],
        mode: "explicit_round_up",
        ..BASE
    },
    Case { label: "valid", x: &[1, 2, 5, 5], w: &[3, 2, 2, 2], pads: &[1, 1, 1, 1], mode: "valid", ..BASE },
    Case { label: "1-D", x: &[2, 4, 17], w: &[5, 4, 5], strides: &[2], pads: &[3, 1], ..BASE },
    Case {
        label: "3-D",
        x: &[1, 2, 4, 5, 6],
        w: &[3, 2, 2, 3, 3],
        strides: &[1, 2, 1],
        pads: &[1, 0, 2, 0, 1, 1],
        ..BASE
    },
    Case { label: "kernel as large as the input", x: &[2, 3, 5, 5], w: &[4, 3, 5, 5], ..BASE },
    Case { label: "stride over the kernel", x: &[1, 2, 9, 9], w: &[3, 2, 1, 1], strides: &[3, 4], ..BASE },
    Case { label: "wide", x: &[1, 64, 14, 14], w: &[40, 64, 3, 3], pads: &[1, 1, 1, 1], ..BASE },
    Case {
        label: "groups of 4 channels",
        x: &[2, 16, 9, 10],
        w: &[16, 4, 3, 3],
        groups: 4,
        pads: &[1, 1, 1, 1],
        ..BASE
    },
    Case {
        label: "groups of 3 to 2 channels, dilated lines",
        x: &[2, 12, 7, 24],
        w: &[8, 3, 2, 4],
        groups: 4,
        pads: &[0, 2, 1, 5],
        dilations: &[1, 3],
        ..BASE
    },
    Case {
        label: "groups of 16 channels",
        x: &[1, 32, 8, 16],
        w: &[32, 16, 3, 3],
        groups: 2,
        pads: &[1, 1, 1, 1],
        ..BASE
    },
    Case {
        label: "groups of 12 to 1 channels, strides",
        x: &[1, 36, 9, 11],
        w: &[3, 12, 3, 2],
        groups: 3,
        strides: &[2, 3],
        ..BASE
    },
    Case {
        label: "1-D depthwise, many taps",
        x: &[2, 24, 83],
        w: &[24, 1, 31],
        groups: 24,
        pads: &[15, 15],
        ..BASE
    },
    Case {
        label: "1-D depthwise, long lines",
        x: &[1, 2, 3001],
        w: &[4, 1, 9],
        groups: 2,
        strides: &[1],
        dilations: &[5],
        pads: &[40, 3],
        ..BASE
    },
    Case {
        label: "1-D groups, large stride",
        x: &[2, 8, 200],
        w: &[16, 2, 11],
        groups: 4,
        strides: &[5],
        pads: &[4, 4],
        ..BASE
    },
    Case {
        label: "depthwise, dilated lines far apart",
        x: &[1, 16, 40, 21],
        w: &[16, 1, 3, 3],
        groups: 16,
        dilations: &[12, 6],
        pads: &[12, 6, 12, 6],
        ..BASE
    },
    Case {
        label: "depthwise of small planes",
        x: &[3, 40, 7, 7],
        w: &[40, 1, 5, 5],
        groups: 40,
        pads: &[2, 2, 2, 2],
        ..BASE
    },
    Case {
        label: "3-D depthwise",
        x: &[1, 8, 5, 6, 18],
        w: &[8, 1, 3, 2, 3],
        groups: 8,
        strides: &[2, 1, 1],
        dilations: &[1, 2, 1],
        pads: &[1, 1, 1, 1, 1, 1],
        ..BASE
    },
    Case {
        label: "3 channels, large filter",
        x: &[1, 3, 20, 19],
        w: &[10, 3, 7, 7],
        strides: &[2, 2],
        pads: &[3, 3, 3, 3],
        ..BASE
    },
    Case {
        label: "groups of lines of padding",
        x: &[1, 8, 3, 0],
        w: &[8, 1, 1, 2],
        groups: 8,
        pads: &[0, 1, 0, 2],
        ..BASE
    },
    Case { label: "batch 0", x: &[0, 3, 4, 4], w: &[2, 3, 3, 3], ..BASE },
    Case { label: "empty image", x: &[2, 3, 0, 4], w: &[2, 3, 1, 1], ..BASE },
    Case { label: "no input channels", x: &[1, 0, 4, 4], w: &[2, 0, 3, 3], ..BASE },
    Case { label: "no output channels", x: &[1, 2, 4, 4], w: &[0, 2, 3, 3], ..BASE },
];

fn make(rng: &mut Rng, c: &Case, types: (DType, DType, DType), bias: bool) -> Problem {
    let attrs = Attrs::new()
        .with("strides", c.strides)
        .with("pads", c.pads)
        .with("dilations", c.dilations)
        .with("groups", c.groups)
        .with("pad_mode", c.mode);
    let (tx, tw, ty) = types;
    let b = bias.then(|| rng.tensor(ty, &c.w[..1]));
    let inputs = [Some(rng.tensor(tx, c.x)), Some(rng.tensor(tw, c.w)), b];
    let with = if bias { ", bias" } else { "" };
    Problem::of(&format!("{} {tx}{with}", c.label), "conv", attrs, inputs)
}

/// Every case in f32, with and without bias; other types on those cases where kernels differ.
pub fn problems(rng: &mut Rng) -> Vec<Problem> {
    use DType::*;
    let mut out = Vec::new();
    for c in CASES {
        for bias in [false, true] {
            out.push(make(rng, c, (F32, F32, F32), bias));
        }
        for t in [F16, BF16] {
            out.push(make(rng, c, (t, t, t), true));
        }
        out.push(make(rng, c, (I8, I8, I32), true));
    }
    for types in [(U8, I8, I32), (I8, U8, I32), (U8, U8, I32), (I32, I32, I32)] {
        out.push(make(rng, &CASES[2], types, false));
    }
    out
}
