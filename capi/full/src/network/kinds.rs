//! Kinds of layers by name, and the setting of their parameters.

use super::params::Param;
use super::value::Value;
use kiln::DType;
use kiln_c_core::error::Fail;
use kiln_kinds::kiln_network::*;
use serde_json::json as object;
use std::collections::BTreeMap;

type Params = BTreeMap<String, Param>;

/// A kind of layer whose parameters are set by name.
trait Kind: LayerDef + Clone {
    /// Names of the parameters.
    const KEYS: &'static [&'static str];
    /// The parameters of a new layer.
    fn start() -> Result<Self, Fail>;
    /// Sets one; `None` where there is none of this name.
    fn set(&mut self, key: &str, value: &Param) -> Option<Result<(), String>>;
}

fn apply<K: Kind>(to: &mut K, kind: &str, given: &Params) -> Result<(), Fail> {
    for (key, value) in given {
        match to.set(key, value) {
            Some(Ok(())) => {}
            Some(Err(why)) => {
                return Err(Fail::argument(format!("parameter \"{key}\" of a layer of kind {kind}: {why}")));
            }
            None => {
                let known = if K::KEYS.is_empty() { "none".into() } else { K::KEYS.join(", ") };
                return Err(Fail::argument(format!(
                    "layers of kind {kind} have no parameter \"{key}\"; they have {known}"
                )));
            }
        }
    }
    Ok(())
}

/// An error of the network.
pub(crate) fn fail(e: NetworkError) -> Fail {
    kiln::Error::from(e).into()
}

fn no_kind(kind: &str) -> Fail {
    Fail::argument(format!("there is no kind of layer \"{kind}\"; there are {}", NAMES.join(", ")))
}

macro_rules! kinds {
    ($($name:literal $t:ty = $default:expr => { $($key:literal $($field:ident).+),* })*) => {
        $(impl Kind for $t {
            const KEYS: &'static [&'static str] = &[$($key),*];
            fn start() -> Result<Self, Fail> {
                Ok($default)
            }
            fn set(&mut self, key: &str, value: &Param) -> Option<Result<(), String>> {
                match key {
                    $($key => Some(Value::read(value).map(|v| self.$($field).+ = v)),)*
                    _ => {
                        let _ = value;
                        None
                    }
                }
            }
        })*

        /// The kinds.
        pub(crate) const NAMES: &[&str] = &[$($name),*];

        /// Adds a layer of a kind.
        pub(crate) fn add(
            net: &mut Network,
            kind: &str,
            inputs: &[Option<TensorId>],
            given: &Params,
        ) -> Result<LayerId, Fail> {
            let given = &with_defaults(kind, given)?;
            match kind {
                $($name => {
                    let mut p = <$t as Kind>::start()?;
                    apply(&mut p, kind, given)?;
                    Ok(net.add_kind_opt(p, inputs).map_err(fail)?.id())
                })*
                _ => Err(no_kind(kind)),
            }
        }

        /// Changes parameters and inputs of a layer, all at once; on an error nothing has changed.
        pub(crate) fn set(
            net: &mut Network,
            id: LayerId,
            given: &Params,
            inputs: &[(usize, TensorId)],
        ) -> Result<(), Fail> {
            let kind = net.layer(id).map_err(fail)?.kind();
            match kind {
                $($name => {
                    let layer = net.layer_of::<$t>(id).map_err(fail)?;
                    let mut p = layer.params().map_err(fail)?.clone();
                    apply(&mut p, kind, given)?;
                    layer.change_with(inputs, |old| *old = p).map_err(fail)?;
                    Ok(())
                })*
                _ if given.is_empty() => {
                    net.layer(id).map_err(fail)?.set_inputs(inputs).map_err(fail)?;
                    Ok(())
                }
                _ => Err(Fail::argument(format!("layers of kind {kind} have no parameters that can be changed"))),
            }
        }

        /// The kinds with the names of their parameters, and the names that parameters have as values.
        pub(crate) fn list() -> serde_json::Value {
            let kinds = [$(($name, <$t as Kind>::KEYS)),*];
            let all: serde_json::Map<_, _> =
                kinds.into_iter().map(|(name, keys)| (name.to_owned(), object!(keys))).collect();
            object!(all)
        }
    };
}
kiln_kinds::layer_kinds!(kinds);

/// Parameters of a new activation, whose usual alpha and beta depend on the function.
fn with_defaults(kind: &str, given: &Params) -> Result<Params, Fail> {
    let mut given = given.clone();
    if kind == "activation" && !given.contains_key("alpha") && !given.contains_key("beta") {
        let mut def = <Activation as Kind>::start()?;
        apply(&mut def, kind, &given)?;
        let (alpha, beta) = def.kind.defaults();
        given.insert("alpha".into(), Param::Float(alpha));
        given.insert("beta".into(), Param::Float(beta));
    }
    Ok(given)
}

/// Refuses parameters that a tensor gives instead.
pub(crate) fn check_taken_over(net: &mut Network, id: LayerId, given: &Params) -> Result<(), Fail> {
    let layer = net.layer(id).map_err(fail)?;
    for (kind, key, input) in kiln_kinds::TAKEN_OVER {
        let taken = layer.inputs().get(input).is_some_and(Option::is_some);
        if taken && layer.kind() == kind && given.contains_key(key) {
            let (layer, what) = (layer.name().to_owned(), key.to_owned());
            return Err(fail(NetworkError::Irreversible { layer, what }));
        }
    }
    Ok(())
}

/// A constant without elements, to be replaced.
fn empty() -> Result<kiln::Tensor, Fail> {
    kiln::Tensor::zeros(DType::F32, &[0]).map_err(Fail::from)
}
