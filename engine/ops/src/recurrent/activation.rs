//! The activations of recurrences, chosen by name.

use super::Kind;
use kiln_ir::attr::Attrs;
use kiln_ir::error::OpError;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Tanh,
    Sigmoid,
    Relu,
    Softsign,
    Softplus,
    Affine,
    LeakyRelu,
    ThresholdedRelu,
    ScaledTanh,
    HardSigmoid,
    Elu,
}

use Function::*;

/// Names (lower case, without underscores) and, where there are such parameters, defaults of alpha and beta.
const FUNCTIONS: [(&str, Function, Option<f64>, Option<f64>); 11] = [
    ("tanh", Tanh, None, None),
    ("sigmoid", Sigmoid, None, None),
    ("relu", Relu, None, None),
    ("softsign", Softsign, None, None),
    ("softplus", Softplus, None, None),
    ("affine", Affine, Some(1.0), Some(0.0)),
    ("leakyrelu", LeakyRelu, Some(0.01), None),
    ("thresholdedrelu", ThresholdedRelu, Some(1.0), None),
    ("scaledtanh", ScaledTanh, Some(1.0), Some(1.0)),
    ("hardsigmoid", HardSigmoid, Some(0.2), Some(0.5)),
    ("elu", Elu, Some(1.0), None),
];

/// An activation with its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activation {
    function: Function,
    alpha: f64,
    beta: f64,
}

impl Activation {
    /// Plain name of the activation (lower case, without underscores), alpha and beta.
    pub(crate) fn describe(&self) -> (&'static str, f64, f64) {
        let name = FUNCTIONS.iter().find(|f| f.1 == self.function).map_or("", |f| f.0);
        (name, self.alpha, self.beta)
    }

    pub(crate) fn of(&self, x: f64) -> f64 {
        let (a, b) = (self.alpha, self.beta);
        // `x.max(0.0)` would turn NaN into 0.
        let relu = |x: f64| if x < 0.0 { 0.0 } else { x };
        match self.function {
            Tanh => libm::tanh(x),
            Sigmoid => 1.0 / (1.0 + libm::exp(-x)),
            Relu => relu(x),
            Softsign => x / (1.0 + x.abs()),
            Softplus => relu(x) + libm::log1p(libm::exp(-x.abs())),
            Affine => a * x + b,
            LeakyRelu if x < 0.0 => a * x,
            LeakyRelu => x,
            ThresholdedRelu if x <= a => 0.0,
            ThresholdedRelu => x,
            ScaledTanh => a * libm::tanh(b * x),
            HardSigmoid => (a * x + b).clamp(0.0, 1.0),
            Elu if x < 0.0 => a * libm::expm1(x),
            Elu => x,
        }
    }
}

/// The activations of all directions, one after the other.
pub(crate) fn of(attrs: &Attrs, kind: Kind) -> Result<Vec<Activation>, OpError> {
    let default: Vec<String> = kind.activations.iter().map(|&s| s.to_owned()).collect();
    let count = super::directions(attrs)? * default.len();
    let names = match attrs.get("activations") {
        Some(kiln_ir::Attr::Strs(v)) if !v.is_empty() => v.clone(),
        _ => default.iter().cycle().take(count).cloned().collect(),
    };
    if names.len() != count {
        return Err(wrong(format!("{names:?}"), format!("{count} names, or none")));
    }
    let mut alpha = attrs.floats("alpha")?.iter().copied();
    let mut beta = attrs.floats("beta")?.iter().copied();
    let find = |name: &String| {
        let plain = name.to_ascii_lowercase().replace('_', "");
        FUNCTIONS.into_iter().find(|f| f.0 == plain).ok_or_else(|| {
            let known: Vec<_> = FUNCTIONS.iter().map(|f| f.0).collect();
            wrong(format!("\"{name}\""), format!("one of {}", known.join(", ")))
        })
    };
    let mut out = Vec::with_capacity(count);
    for name in &names {
        let (_, function, a, b) = find(name)?;
        let take = |default: Option<f64>, from: &mut dyn Iterator<Item = f64>| {
            default.map_or(0.0, |d| from.next().unwrap_or(d))
        };
        out.push(Activation { function, alpha: take(a, &mut alpha), beta: take(b, &mut beta) });
    }
    Ok(out)
}

fn wrong(found: String, wanted: String) -> OpError {
    OpError::Attr { name: "activations".into(), found, wanted }
}
