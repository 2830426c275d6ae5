//! Test problems of pooling.

use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::problem::{Problem, Rng};

struct Case {
    label: &'static str,
    x: &'static [usize],
    kernel: &'static [i64],
    strides: &'static [i64],
    pads: &'static [i64],
    dilations: &'static [i64],
    ceil: bool,
    mode: &'static str,
}

const BASE: Case = Case {
    label: "",
    x: &[],
    kernel: &[],
    strides: &[],
    pads: &[],
    dilations: &[],
    ceil: false,
    mode: "explicit",
};

const CASES: &[Case] = &[
    Case { label: "2x2", x: &[2, 3, 8, 6], kernel: &[2, 2], strides: &[2, 2], ..BASE },
    Case { label: "3x3, padded", x: &[1, 5, 9, 7], kernel: &[3, 3], pads: &[1, 1, 1, 1], ..BASE },
    Case {
        label: "asymmetric pads, strides",
        x: &[2, 3, 11, 8],
        kernel: &[3, 2],
        strides: &[2, 3],
        pads: &[2, 0, 1, 1],
        ..BASE
    },
    Case { label: "dilated", x: &[1, 2, 13, 12], kernel: &[3, 3], dilations: &[3, 2], ..BASE },
    Case {
        label: "ceil_mode",
        x: &[1, 2, 8, 7],
        kernel: &[3, 3],
        strides: &[2, 3],
        pads: &[1, 1, 1, 1],
        ceil: true,
        ..BASE
    },
    Case {
        label: "ceil_mode, last window dropped",
        x: &[1, 1, 2, 2],
        kernel: &[1, 1],
        strides: &[2, 2],
        pads: &[0, 0, 1, 1],
        ceil: true,
        ..BASE
    },
    Case {
        label: "round up",
        x: &[1, 2, 8, 8],
        kernel: &[3, 3],
        strides: &[2, 2],
        mode: "explicit_round_up",
        ..BASE
    },
    Case {
        label: "same_upper",
        x: &[1, 2, 7, 6],
        kernel: &[4, 3],
        strides: &[2, 2],
        mode: "same_upper",
        ..BASE
    },
    Case { label: "same_lower", x: &[1, 2, 7, 6], kernel: &[2, 3], mode: "same_lower", ..BASE },
    Case { label: "valid", x: &[1, 2, 5, 5], kernel: &[2, 2], pads: &[1, 1, 1, 1], mode: "valid", ..BASE },
    Case { label: "1-D", x: &[2, 4, 17], kernel: &[5], strides: &[2], pads: &[3, 1], ..BASE },
    Case { label: "3-D", x: &[1, 2, 4, 5, 6], kernel: &[2, 3, 3], strides: &[1, 2, 1], ..BASE },
    Case { label: "whole image", x: &[2, 3, 7, 9], kernel: &[7, 9], ..BASE },
    Case { label: "rows of vectors", x: &[2, 3, 9, 16], kernel: &[3, 3], pads: &[1, 1, 1, 1], ..BASE },
    Case { label: "halves of rows", x: &[1, 5, 12, 32], kernel: &[2, 2], strides: &[2, 2], ..BASE },
    Case {
        label: "eight channels, ceil_mode",
        x: &[2, 8, 8, 7],
        kernel: &[3, 3],
        strides: &[2, 3],
        pads: &[1, 0, 1, 2],
        ceil: true,
        ..BASE
    },
    Case {
        label: "more channels, six taps across",
        x: &[1, 24, 5, 13],
        kernel: &[2, 6],
        pads: &[0, 2, 1, 3],
        dilations: &[1, 2],
        ..BASE
    },
    Case { label: "channels of lines", x: &[3, 16, 11], kernel: &[5], strides: &[2], pads: &[2, 2], ..BASE },
    Case {
        label: "channels of volumes",
        x: &[1, 8, 4, 5, 6],
        kernel: &[2, 3, 3],
        strides: &[1, 2, 1],
        pads: &[1, 0, 1, 0, 1, 1],
        ..BASE
    },
    Case { label: "batch 0", x: &[0, 3, 4, 4], kernel: &[2, 2], ..BASE },
    Case { label: "no channels", x: &[2, 0, 4, 4], kernel: &[2, 2], ..BASE },
];

impl Case {
    fn attrs(&self) -> Attrs {
        Attrs::new()
            .with("kernel", self.kernel)
            .with("strides", self.strides)
            .with("pads", self.pads)
            .with("dilations", self.dilations)
            .with("ceil_mode", self.ceil)
            .with("pad_mode", self.mode)
    }
}

/// Problems of `pool`.
pub fn pool(rng: &mut Rng) -> Vec<Problem> {
    use DType::*;
    let mut out = Vec::new();
    for c in CASES {
        for t in [F32, F16, BF16, I8, U8, I32] {
            let label = format!("max {} {t}", c.label);
            out.push(Problem::of(&label, "pool", c.attrs().with("op", "max"), [Some(rng.tensor(t, c.x))]));
        }
        for (t, op, include, p) in [
            (F32, "average", false, 2i64),
            (F32, "average", true, 2),
            (F16, "average", true, 2),
            (BF16, "average", false, 2),
            (F32, "lp", false, 2),
            (F32, "lp", false, 1),
            (F16, "lp", false, 3),
        ] {
            let attrs = c.attrs().with("op", op).with("count_include_pad", include).with("p", p);
            let label = format!("{op} {}, include {include}, p {p}, {t}", c.label);
            out.push(Problem::of(&label, "pool", attrs, [Some(rng.tensor(t, c.x))]));
        }
    }
    for (c, t) in CASES.iter().flat_map(|c| [(c, I8), (c, U8)]) {
        let label = format!("sum {} {t}", c.label);
        out.push(Problem::of(&label, "pool", c.attrs().with("op", "sum"), [Some(rng.tensor(t, c.x))]));
    }
    let attrs = Attrs::new().with("op", "max").with("kernel", vec![2i64]);
    let row = rng.edge_floats(F32, 12).reshaped(&[1, 1, 12]);
    out.push(Problem::of("max NaN", "pool", attrs, [row]));
    out
}

/// Problems of `max_pool_indices`.
pub fn indices(rng: &mut Rng) -> Vec<Problem> {
    use DType::*;
    let mut out = Vec::new();
    for c in CASES {
        for (t, order) in [(F32, 0i64), (F32, 1), (F16, 0), (I8, 0), (U8, 1)] {
            let attrs = c.attrs().with("storage_order", order);
            let label = format!("{}, order {order}, {t}", c.label);
            out.push(Problem::of(&label, "max_pool_indices", attrs, [Some(rng.tensor(t, c.x))]));
        }
    }
    out
}
