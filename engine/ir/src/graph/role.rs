//! Roles of weights in the layers of a network, by which a refit names them as well.

use minicbor::{Decode, Encode};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Role of weights in the layer that holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
#[non_exhaustive]
pub enum WeightsRole {
    /// The kernel of a convolution or the matrix of a fully connected layer.
    #[n(0)]
    Kernel,
    /// The bias.
    #[n(1)]
    Bias,
    /// The shift of a scale layer.
    #[n(2)]
    Shift,
    /// The scale of a scale layer.
    #[n(3)]
    Scale,
    /// The elements of a constant layer.
    #[n(4)]
    Constant,
    /// The only weights of a layer, whatever their role is.
    #[n(5)]
    Any,
    /// The power of a scale layer.
    #[n(6)]
    Power,
}

impl WeightsRole {
    /// All roles.
    pub const ALL: [WeightsRole; 7] = [
        WeightsRole::Kernel,
        WeightsRole::Bias,
        WeightsRole::Shift,
        WeightsRole::Scale,
        WeightsRole::Constant,
        WeightsRole::Any,
        WeightsRole::Power,
    ];

    /// The role as a word: "kernel".
    pub fn name(self) -> &'static str {
        match self {
            WeightsRole::Kernel => "kernel",
            WeightsRole::Bias => "bias",
            WeightsRole::Shift => "shift",
            WeightsRole::Scale => "scale",
            WeightsRole::Constant => "constant",
            WeightsRole::Any => "any",
            WeightsRole::Power => "power",
        }
    }
}

impl fmt::Display for WeightsRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WeightsRole {
    type Err = String;

    fn from_str(text: &str) -> Result<WeightsRole, String> {
        let found = WeightsRole::ALL.into_iter().find(|r| r.name() == text);
        found.ok_or_else(|| {
            let known: Vec<&str> = WeightsRole::ALL.iter().map(|r| r.name()).collect();
            format!("\"{text}\" is not a role of weights; roles are {}", known.join(", "))
        })
    }
}

/// A layer that holds or reads a named weight, and the weight's role there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(map)]
pub struct WeightUse {
    /// Name of the layer.
    #[cbor(n(0), with = "crate::wire::arc_str")]
    pub layer: Arc<str>,
    /// Role of the weight in it.
    #[n(1)]
    pub role: WeightsRole,
    /// Name of the weight.
    #[cbor(n(2), with = "crate::wire::arc_str")]
    pub weight: Arc<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_for_roles() {
        for role in WeightsRole::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert!("weight".parse::<WeightsRole>().unwrap_err().contains("kernel, bias"));
    }
}
