//! Debug tensors during a build: outputs as long as passes and the search work, so that they are kept and stored as they are.

use crate::{BuildConfig, BuildError};
use kiln_ir::{Graph, IrError, Source, ValueId};

/// Names of debug tensors that were made outputs, in order, behind the outputs of the network.
pub(crate) struct Exposed {
    outputs: usize,
    names: Vec<String>,
}

/// Makes all debug tensors outputs, those of the settings included. Inputs and constants need nothing: a run knows them.
///
/// # Errors
/// [`BuildError::UnknownTensor`] for a name of the settings that no tensor outside of loops and conditionals has.
pub(crate) fn expose(g: &mut Graph, config: &BuildConfig) -> Result<Exposed, BuildError> {
    for name in &config.debug_tensors {
        if g.find(name).is_none() {
            let tensors = g.value_ids().filter(|&v| g.weight(v).is_none());
            let known = tensors.map(|v| g.value(v).name.as_str()).take(LISTED).collect::<Vec<_>>();
            return Err(BuildError::UnknownTensor { name: name.clone(), known: known.join(", ") });
        }
        g.debug.insert(name.clone());
    }
    let computed = |v: ValueId| matches!(g.value(v).source, Source::Node(..));
    let wanted = g.debug.iter().filter_map(|name| Some((name.clone(), g.find(name)?)));
    let wanted = wanted.filter(|&(_, v)| computed(v) && !g.outputs.contains(&v));
    let (names, values): (Vec<String>, Vec<ValueId>) = wanted.unzip();
    let outputs = g.outputs.len();
    g.outputs.extend(values);
    Ok(Exposed { outputs, names })
}

impl Exposed {
    /// Takes the debug tensors out of the outputs again.
    pub(crate) fn conceal(self, g: &mut Graph) -> Result<(), BuildError> {
        let values = g.outputs.split_off(self.outputs.min(g.outputs.len()));
        match self.names.iter().zip(&values).find(|&(name, &v)| g.value(v).name != *name) {
            Some((name, &v)) => {
                let found = &g.value(v).name;
                Err(IrError::Structure(format!("debug tensor \"{name}\" became \"{found}\"")).into())
            }
            None => Ok(()),
        }
    }
}

/// Names that an error lists.
const LISTED: usize = 10;
