//! Activations: functions of one float tensor, some with parameters. Computed in f32.

use crate::pointwise;
use crate::pointwise::unary::check;
use crate::util::PLAIN;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::expr::{BinOp, Builder, CmpOp, Expr, Reg, UnOp};
use kiln_ir::op::{AttrDef, OpDef, OpName, Tolerance, attr, choice};
use kiln_ir::problem::{Problem, Rng};

const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];

/// The definition of one activation; `$f` builds it from a [`Scope`].
macro_rules! activation {
    ($name:expr, $tol:ident, [$($attr:expr),*], $doc:literal, $f:expr) => {
        OpDef {
            name: $name,
            doc: $doc,
            attrs: { const ATTRS: &[AttrDef] = &[$($attr),*]; ATTRS },
            infer: pointwise::infer,
            eval: pointwise::eval,
            ranges: None,
            expr: Some(|attrs, t| build(attrs, t, $f)),
            tolerance: Tolerance::$tol,
            problems: |rng| problems($name, rng),
            ..PLAIN
        }
    };
}

/// A float attribute with a default.
macro_rules! float {
    ($name:expr, $default:expr) => {
        attr($name, || Attr::Float($default))
    };
}

kiln_ir::op_names! {
    LEAKY_RELU = "leaky_relu",
    ELU = "elu",
    CELU = "celu",
    SELU = "selu",
    SIGMOID = "sigmoid",
    HARD_SIGMOID = "hard_sigmoid",
    HARD_SWISH = "hard_swish",
    SOFTPLUS = "softplus",
    SOFTSIGN = "softsign",
    GELU = "gelu",
    MISH = "mish",
    SWISH = "swish",
    THRESHOLDED_RELU = "thresholded_relu",
    SCALED_TANH = "scaled_tanh",
    SHRINK = "shrink",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    activation!(LEAKY_RELU, Elementwise, [float!("alpha", 0.01)], "x where x ≥ 0, else alpha·x.", |s| {
        let alpha = s.float("alpha")?;
        let scaled = s.bin(BinOp::Mul, alpha, s.x);
        Ok(s.where_below_zero(scaled, s.x))
    }),
    activation!(
        ELU,
        Transcendental,
        [float!("alpha", 1.0)],
        "x where x ≥ 0, else alpha·(eˣ − 1).",
        |s| {
            let (alpha, e) = (s.float("alpha")?, s.un(UnOp::Exp, s.x));
            let e = s.bin_num(BinOp::Sub, e, 1.0);
            let curve = s.bin(BinOp::Mul, alpha, e);
            Ok(s.where_below_zero(curve, s.x))
        }
    ),
    activation!(
        CELU,
        Transcendental,
        [float!("alpha", 1.0)],
        "max(0, x) + min(0, alpha·(e^(x/alpha) − 1)).",
        |s| {
            let alpha = s.float("alpha")?;
            let ratio = s.bin(BinOp::Div, s.x, alpha);
            let e = s.un(UnOp::Exp, ratio);
            let e = s.bin_num(BinOp::Sub, e, 1.0);
            let curve = s.bin(BinOp::Mul, alpha, e);
            let (low, high) = (s.bin_num(BinOp::Min, curve, 0.0), s.bin_num(BinOp::Max, s.x, 0.0));
            Ok(s.bin(BinOp::Add, high, low))
        }
    ),
    activation!(
        SELU,
        Transcendental,
        [float!("alpha", 1.673_263_192_176_818_8), float!("gamma", 1.050_701_022_148_132_3)],
        "gamma·x where x > 0, else gamma·(alpha·eˣ − alpha).",
        |s| {
            let (alpha, gamma, e) = (s.float("alpha")?, s.float("gamma")?, s.un(UnOp::Exp, s.x));
            let e = s.bin(BinOp::Mul, alpha, e);
            let curve = s.bin(BinOp::Sub, e, alpha);
            let y = s.where_below_zero(curve, s.x);
            Ok(s.bin(BinOp::Mul, gamma, y))
        }
    ),
    activation!(SIGMOID, Transcendental, [], "1/(1 + e^(−x)).", |s| Ok(s.sigmoid(s.x))),
    activation!(
        HARD_SIGMOID,
        Elementwise,
        [float!("alpha", 0.2), float!("beta", 0.5)],
        "max(0, min(1, alpha·x + beta)).",
        |s| {
            let (alpha, beta) = (s.float("alpha")?, s.float("beta")?);
            Ok(s.hard_sigmoid(alpha, beta))
        }
    ),
    activation!(HARD_SWISH, Elementwise, [], "x·max(0, min(1, x/6 + 1/2)).", |s| {
        let (alpha, beta) = (s.b.num(1.0 / 6.0, s.x), s.b.num(0.5, s.x));
        let gate = s.hard_sigmoid(alpha, beta);
        Ok(s.bin(BinOp::Mul, s.x, gate))
    }),
    activation!(
        SOFTPLUS,
        Transcendental,
        [float!("alpha", 1.0), float!("beta", 1.0)],
        "alpha·ln(1 + e^(beta·x)).",
        |s| {
            let (alpha, beta) = (s.float("alpha")?, s.float("beta")?);
            let bx = s.bin(BinOp::Mul, beta, s.x);
            let y = s.softplus(bx);
            Ok(s.bin(BinOp::Mul, alpha, y))
        }
    ),
    activation!(SOFTSIGN, Elementwise, [], "x/(1 + |x|).", |s| {
        let size = s.un(UnOp::Abs, s.x);
        let below = s.bin_num(BinOp::Add, size, 1.0);
        Ok(s.bin(BinOp::Div, s.x, below))
    }),
    activation!(
        GELU,
        Transcendental,
        [choice("approximate", || Attr::Str("none".into()), &["none", "tanh"])],
        "x/2·(1 + erf(x/√2)), or with approximate = \"tanh\" x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))).",
        |s| {
            let curve = if s.attrs.str("approximate")? == "tanh" {
                let inner = s.tanh_gelu_argument();
                s.un(UnOp::Tanh, inner)
            } else {
                let inner = s.bin_num(BinOp::Mul, s.x, std::f64::consts::FRAC_1_SQRT_2);
                s.un(UnOp::Erf, inner)
            };
            let gate = s.bin_num(BinOp::Add, curve, 1.0);
            let half = s.bin_num(BinOp::Mul, s.x, 0.5);
            Ok(s.bin(BinOp::Mul, half, gate))
        }
    ),
    activation!(MISH, Transcendental, [], "x·tanh(ln(1 + eˣ)).", |s| {
        let soft = s.softplus(s.x);
        let gate = s.un(UnOp::Tanh, soft);
        Ok(s.bin(BinOp::Mul, s.x, gate))
    }),
    activation!(SWISH, Transcendental, [float!("alpha", 1.0)], "x/(1 + e^(−alpha·x)).", |s| {
        let alpha = s.float("alpha")?;
        let ax = s.bin(BinOp::Mul, alpha, s.x);
        let gate = s.sigmoid(ax);
        Ok(s.bin(BinOp::Mul, s.x, gate))
    }),
    activation!(
        THRESHOLDED_RELU,
        Exact,
        [float!("alpha", 1.0)],
        "x where x > alpha, else 0 (so for NaN too).",
        |s| {
            let alpha = s.float("alpha")?;
            let (above, zero) = (s.b.cmp(CmpOp::Gt, s.x, alpha), s.b.num(0.0, s.x));
            Ok(s.b.select(above, s.x, zero))
        }
    ),
    activation!(
        SCALED_TANH,
        Transcendental,
        [float!("alpha", 1.0), float!("beta", 1.0)],
        "alpha·tanh(beta·x).",
        |s| {
            let (alpha, beta) = (s.float("alpha")?, s.float("beta")?);
            let bx = s.bin(BinOp::Mul, beta, s.x);
            let y = s.un(UnOp::Tanh, bx);
            Ok(s.bin(BinOp::Mul, alpha, y))
        }
    ),
    activation!(
        SHRINK,
        Elementwise,
        [float!("lambd", 0.5), float!("bias", 0.0)],
        "x + bias where x < −lambd, x − bias where x > lambd, else 0 (so for NaN too).",
        |s| {
            let (lambd, bias, zero) = (s.float("lambd")?, s.float("bias")?, s.b.num(0.0, s.x));
            let minus = s.un(UnOp::Neg, lambd);
            let (below, above) = (s.b.cmp(CmpOp::Lt, s.x, minus), s.b.cmp(CmpOp::Gt, s.x, lambd));
            let (up, down) = (s.bin(BinOp::Add, s.x, bias), s.bin(BinOp::Sub, s.x, bias));
            let right = s.b.select(above, down, zero);
            Ok(s.b.select(below, up, right))
        }
    ),
];

/// Arguments of an activation's formula: the builder, the element in f32, the attributes.
struct Scope<'a> {
    b: Builder,
    x: Reg,
    attrs: &'a Attrs,
}

fn build(
    attrs: &Attrs,
    t: &[DType],
    f: impl Fn(&mut Scope<'_>) -> Result<Reg, OpError>,
) -> Result<Expr, OpError> {
    check(0, t, FLOATS)?;
    let mut b = Builder::new(t);
    let x = b.load(0);
    let mut s = Scope { b, x, attrs };
    let y = f(&mut s)?;
    Ok(s.b.finish(y, t[0]))
}

impl Scope<'_> {
    fn float(&mut self, name: &str) -> Result<Reg, OpError> {
        Ok(self.b.num(self.attrs.float(name)?, self.x))
    }

    fn un(&mut self, op: UnOp, a: Reg) -> Reg {
        self.b.un(op, a)
    }

    fn bin(&mut self, op: BinOp, a: Reg, b: Reg) -> Reg {
        self.b.bin(op, a, b)
    }

    fn bin_num(&mut self, op: BinOp, a: Reg, x: f64) -> Reg {
        let x = self.b.num(x, a);
        self.b.bin(op, a, x)
    }

    /// `a` where the element is below zero, else `b`.
    fn where_below_zero(&mut self, a: Reg, b: Reg) -> Reg {
        let zero = self.b.num(0.0, self.x);
        let below = self.b.cmp(CmpOp::Lt, self.x, zero);
        self.b.select(below, a, b)
    }

    fn sigmoid(&mut self, x: Reg) -> Reg {
        let minus = self.un(UnOp::Neg, x);
        let e = self.un(UnOp::Exp, minus);
        let below = self.bin_num(BinOp::Add, e, 1.0);
        self.un(UnOp::Recip, below)
    }

    fn hard_sigmoid(&mut self, alpha: Reg, beta: Reg) -> Reg {
        let ax = self.bin(BinOp::Mul, alpha, self.x);
        let line = self.bin(BinOp::Add, ax, beta);
        let low = self.bin_num(BinOp::Min, line, 1.0);
        self.bin_num(BinOp::Max, low, 0.0)
    }

    /// ln(1 + eˣ) as max(x, 0) + ln(1 + e^(−|x|)), which neither overflows nor loses digits.
    fn softplus(&mut self, x: Reg) -> Reg {
        let high = self.bin_num(BinOp::Max, x, 0.0);
        let size = self.un(UnOp::Abs, x);
        let minus = self.un(UnOp::Neg, size);
        let e = self.un(UnOp::Exp, minus);
        let low = self.un(UnOp::Log1p, e);
        self.bin(BinOp::Add, high, low)
    }

    /// √(2/π)·(x + 0.044715·x³).
    fn tanh_gelu_argument(&mut self) -> Reg {
        let square = self.bin(BinOp::Mul, self.x, self.x);
        let cube = self.bin(BinOp::Mul, square, self.x);
        let cube = self.bin_num(BinOp::Mul, cube, 0.044715);
        let sum = self.bin(BinOp::Add, self.x, cube);
        self.bin_num(BinOp::Mul, sum, (2.0 / std::f64::consts::PI).sqrt())
    }
}

/// The pointwise problems with default attributes, and again with others.
fn problems(name: OpName, rng: &mut Rng) -> Vec<Problem> {
    let mut out = pointwise::problems(name, 1, FLOATS, rng);
    let op = kiln_ir::problem::op(name, Attrs::new());
    if op.attrs().is_empty() {
        return out;
    }
    let mut attrs = Attrs::new();
    for (i, d) in op.def().attrs.iter().enumerate() {
        match (d.default)() {
            Attr::Float(_) => attrs.set(d.name, 0.75 + i as f64),
            _ => attrs.set(d.name, *d.choices.last().unwrap_or(&"")),
        }
    }
    {
        let op = kiln_ir::problem::op(name, attrs);
        out.extend(
            pointwise::problems_of(&op, 1, FLOATS, rng)
                .into_iter()
                .map(|p| Problem { label: format!("other attributes, {}", p.label), ..p }),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, floats, run};

    #[track_caller]
    fn check(name: &str, attrs: Attrs, x: &[f64], y: &[f64]) {
        assert_near(&run(name, attrs, &[f32s(&[x.len()], x)]), &[x.len()], y, 1e-6);
    }

    fn with(pairs: &[(&str, f64)]) -> Attrs {
        pairs.iter().fold(Attrs::new(), |a, (k, v)| a.with(k, *v))
    }

    const X: [f64; 3] = [-1.0, 0.0, 1.0];

    /// Expected values from the definitions, worked out by hand.
    #[test]
    fn values_of_the_definitions() {
        let e1 = (-1f64).exp();
        check("leaky_relu", with(&[("alpha", 0.1)]), &X, &[-0.1, 0.0, 1.0]);
        check("elu", with(&[("alpha", 2.0)]), &X, &[-1.2642411, 0.0, 1.0]);
        check("celu", with(&[("alpha", 2.0)]), &X, &[-0.7869387, 0.0, 1.0]);
        check("selu", with(&[("alpha", 2.0), ("gamma", 3.0)]), &X, &[-3.7927232, 0.0, 3.0]);
        check("sigmoid", Attrs::new(), &X, &[0.26894143, 0.5, 0.7310586]);
        check("hard_sigmoid", with(&[("alpha", 0.5), ("beta", 0.6)]), &X, &[0.1, 0.6, 1.0]);
        check("hard_swish", Attrs::new(), &[-4.0, -1.0, 1.0, 4.0], &[0.0, -1.0 / 3.0, 2.0 / 3.0, 4.0]);
        check("softplus", Attrs::new(), &X, &[(1.0 + e1).ln(), 2f64.ln(), 1.3132616]);
        check("softsign", Attrs::new(), &X, &[-0.5, 0.0, 0.5]);
        check("gelu", Attrs::new(), &X, &[-0.15865526, 0.0, 0.8413447]);
        check("gelu", Attrs::new().with("approximate", "tanh"), &X, &[-0.158808, 0.0, 0.841192]);
        check("mish", Attrs::new(), &X, &[-0.30340147, 0.0, 0.8650984]);
        check("swish", with(&[("alpha", 2.0)]), &X, &[-0.11920292, 0.0, 0.880797]);
        check("thresholded_relu", with(&[("alpha", 2.0)]), &[1.5, 2.0, 2.2], &[0.0, 0.0, 2.2]);
        check("scaled_tanh", with(&[("alpha", 2.0), ("beta", 0.5)]), &X, &[-0.92423434, 0.0, 0.92423434]);
        let x = [-2.0, -1.5, 0.0, 1.0, 2.0];
        check("shrink", with(&[("lambd", 1.5), ("bias", 1.5)]), &x, &[-0.5, 0.0, 0.0, 0.0, 0.5]);
    }

    #[test]
    fn extremes_neither_overflow_nor_vanish() {
        let x = [-1000.0, 1000.0, f64::INFINITY, f64::NAN];
        check("softplus", Attrs::new(), &x, &[0.0, 1000.0, f64::INFINITY, f64::NAN]);
        check("elu", Attrs::new(), &x, &[-1.0, 1000.0, f64::INFINITY, f64::NAN]);
        check("sigmoid", Attrs::new(), &x, &[0.0, 1.0, 1.0, f64::NAN]);
        check("mish", Attrs::new(), &x, &[0.0, 1000.0, f64::INFINITY, f64::NAN]);
        check("hard_sigmoid", Attrs::new(), &x, &[0.0, 1.0, 1.0, f64::NAN]);
    }

    #[test]
    fn narrow_floats_round_once_at_the_end() {
        let y = run("sigmoid", Attrs::new(), &[floats(DType::F16, &[1], &[1.0])]);
        assert_eq!((y.dtype(), y.to_f64()), (DType::F16, vec![0.73095703125]));
    }
}
