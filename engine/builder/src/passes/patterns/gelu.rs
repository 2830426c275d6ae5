//! Activations that read their argument twice, which exporters write out: GELU in both forms, SiLU, Mish, hard swish.

use super::pat::{Pat, Pat::*};
use super::view::View;
use super::{Rule, Writer};
use kiln_ir::{Attrs, IrError, NodeId, OpName, ValueId};
use kiln_ops::pointwise::activation::{GELU, MISH, SIGMOID, SOFTPLUS, SWISH};
use kiln_ops::pointwise::binary::{ADD, DIV, MUL, POW};
use kiln_ops::pointwise::unary::{ERF, TANH};
use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};

/// √(2/π).
const TANH_SCALE: f64 = 0.797_884_560_802_865_4;
/// Coefficient of x³.
const TANH_CUBE: f64 = 0.044715;

const BY_ERF: Pat =
    Op(ERF, &[Or(&[Op(DIV, &[Any("x"), Number(SQRT_2)]), Op(MUL, &[Any("x"), Number(FRAC_1_SQRT_2)])])]);
const CUBE: Pat =
    Or(&[Op(POW, &[Any("x"), Number(3.0)]), Op(MUL, &[Op(MUL, &[Any("x"), Any("x")]), Any("x")])]);
const BY_TANH: Pat = Op(
    TANH,
    &[Or(&[
        Op(MUL, &[Op(ADD, &[Op(MUL, &[CUBE, Number(TANH_CUBE)]), Any("x")]), Number(TANH_SCALE)]),
        Op(
            MUL,
            &[
                Op(ADD, &[Op(MUL, &[Op(MUL, &[Any("x"), Any("x")]), Number(TANH_CUBE)]), Number(1.0)]),
                Op(MUL, &[Any("x"), Number(TANH_SCALE)]),
            ],
        ),
    ])],
);

/// x/2·(1 + curve), however the three factors are grouped.
macro_rules! gated {
    ($curve:expr) => {
        Or(&[
            Op(MUL, &[Op(MUL, &[Op(ADD, &[$curve, Number(1.0)]), Any("x")]), Number(0.5)]),
            Op(MUL, &[Op(MUL, &[Op(ADD, &[$curve, Number(1.0)]), Number(0.5)]), Any("x")]),
            Op(MUL, &[Op(ADD, &[$curve, Number(1.0)]), Op(MUL, &[Any("x"), Number(0.5)])]),
            Op(MUL, &[Op(ADD, &[$curve, Number(1.0)]), Op(DIV, &[Any("x"), Number(2.0)])]),
            Op(DIV, &[Op(MUL, &[Op(ADD, &[$curve, Number(1.0)]), Any("x")]), Number(2.0)]),
        ])
    };
}

/// Operator, value of `approximate`, pattern.
const FORMS: &[(OpName, &str, Pat)] = &[
    (GELU, "none", gated!(BY_ERF)),
    (GELU, "tanh", gated!(BY_TANH)),
    (SWISH, "", Op(MUL, &[Op(SIGMOID, &[Any("x")]), Any("x")])),
    (MISH, "", Op(MUL, &[Op(TANH, &[Op(SOFTPLUS, &[Any("x")])]), Any("x")])),
];

pub struct Gelu {
    op: OpName,
    approximate: &'static str,
    x: ValueId,
    inside: Vec<NodeId>,
}

impl Rule for Gelu {
    const NAME: &'static str = "gelu";

    fn find(view: &View<'_>, root: NodeId) -> Option<Gelu> {
        FORMS.iter().find_map(|(op, approximate, pat)| {
            let found = pat.at_node(view, root)?;
            let plain = found
                .inside
                .iter()
                .filter_map(|&n| view.g.get(n))
                .filter(|n| n.op.is(SOFTPLUS))
                .all(|n| ["alpha", "beta"].iter().all(|a| n.op.attrs().float(a).is_ok_and(|x| x == 1.0)));
            let x = found.value("x").filter(|_| plain)?;
            Some(Gelu { op: *op, approximate, x, inside: found.inside })
        })
    }

    fn inside(&self) -> &[NodeId] {
        &self.inside
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let attrs = match self.approximate {
            "" => Attrs::new(),
            a => Attrs::new().with("approximate", a),
        };
        let y = w.op(self.op, attrs, &[self.x])?;
        Ok(w.replace(root, y))
    }
}
