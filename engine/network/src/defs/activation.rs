//! Activations: functions of one element with parameters.

use crate::NetworkError;
use crate::body::bad;
use crate::layer::setters;
use crate::{Body, Layer, LayerDef, Network, TensorId};
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;

impl Network {
    /// A function of every element; its parameters have the usual defaults.
    pub fn add_activation(
        &mut self,
        input: TensorId,
        kind: ActivationKind,
    ) -> Result<Layer<'_, Activation>, NetworkError> {
        let (alpha, beta) = kind.defaults();
        self.add_kind(Activation { kind, alpha, beta }, &[input])
    }
}

/// Functions of one element with up to two parameters, α and β.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActivationKind {
    Relu,
    Sigmoid,
    Tanh,
    LeakyRelu,
    Elu,
    Selu,
    Softsign,
    Softplus,
    Clip,
    HardSigmoid,
    ScaledTanh,
    ThresholdedRelu,
    GeluErf,
    GeluTanh,
}

impl ActivationKind {
    /// Operator, names of α and β among its attributes, their defaults.
    fn spec(self) -> (&'static str, [&'static str; 2], [f64; 2]) {
        use ActivationKind as K;
        match self {
            K::Relu => ("relu", ["", ""], [0.0, 0.0]),
            K::Sigmoid => ("sigmoid", ["", ""], [0.0, 0.0]),
            K::Tanh => ("tanh", ["", ""], [0.0, 0.0]),
            K::LeakyRelu => ("leaky_relu", ["alpha", ""], [0.01, 0.0]),
            K::Elu => ("elu", ["alpha", ""], [1.0, 0.0]),
            K::Selu => ("selu", ["alpha", "gamma"], [1.673_263_192_176_818_8, 1.050_700_998_306_274_4]),
            K::Softsign => ("softsign", ["", ""], [0.0, 0.0]),
            K::Softplus => ("softplus", ["alpha", "beta"], [1.0, 1.0]),
            K::Clip => ("clip", ["min", "max"], [f32::MIN as f64, f32::MAX as f64]),
            K::HardSigmoid => ("hard_sigmoid", ["alpha", "beta"], [0.2, 0.5]),
            K::ScaledTanh => ("scaled_tanh", ["alpha", "beta"], [1.0, 1.0]),
            K::ThresholdedRelu => ("thresholded_relu", ["alpha", ""], [1.0, 0.0]),
            K::GeluErf | K::GeluTanh => ("gelu", ["", ""], [0.0, 0.0]),
        }
    }

    /// The usual α and β.
    pub fn defaults(self) -> (f64, f64) {
        let [alpha, beta] = self.spec().2;
        (alpha, beta)
    }
}

/// See [`Network::add_activation`].
#[derive(Clone, Debug)]
pub struct Activation {
    pub kind: ActivationKind,
    pub alpha: f64,
    pub beta: f64,
}

setters! { Activation {
    /// Replaces the function; α and β stay.
    set_activation_type(kind: ActivationKind) => kind = kind;
    /// The first parameter.
    set_alpha(alpha: f64) => alpha = alpha;
    /// The second parameter.
    set_beta(beta: f64) => beta = beta;
}}

impl LayerDef for Activation {
    fn kind(&self) -> &'static str {
        "activation"
    }
    fn implicit_batch(&self) -> bool {
        true
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        match self.kind {
            ActivationKind::Relu => b.check_dtype(0, |d| d != DType::Bool, "another type than bool")?,
            _ => b.no_ints(0)?,
        };
        let (op, names, _) = self.kind.spec();
        let mut attrs = Attrs::new();
        for (name, value) in names.into_iter().zip([self.alpha, self.beta]).filter(|(n, _)| !n.is_empty()) {
            if !value.is_finite() {
                return Err(bad(name, value, "finite"));
            }
            attrs.set(name, value);
        }
        if op == "gelu" {
            attrs.set("approximate", if self.kind == ActivationKind::GeluTanh { "tanh" } else { "none" });
        }
        Ok(vec![b.op(op, attrs, &[x])?])
    }
}
