//! The inputs of a model as inputs of the network.

use kiln_ir::{Dim, TensorType};
use kiln_network::TensorId;

use super::dtype::{caution, held};
use super::importer::Importer;
use super::options::ImportOptions;
use crate::error::OnnxError;
use crate::model::{Dim as Declared, Graph, ValueInfo, ValueType};

impl Importer {
    /// Adds the inputs that a run has to supply.
    pub(super) fn inputs(&mut self, graph: &Graph, options: &ImportOptions) -> Result<(), OnnxError> {
        if let Some(name) = options.shapes.keys().find(|n| !graph.required_inputs().any(|i| i.name == **n)) {
            let known: Vec<_> = graph.required_inputs().map(|i| i.name.as_str()).collect();
            let reason = format!("is no input of the model, whose inputs are {}", known.join(", "));
            return Err(OnnxError::BadInput { input: name.clone(), reason });
        }
        for input in graph.required_inputs() {
            let id = self.input(input, options)?;
            self.define(&input.name, Some(id));
            self.held.set(&input.name, input.ty.dtype());
            if let Some(text) = input.ty.dtype().and_then(caution) {
                self.report.note(format!("input '{}' is {text}", input.name));
            }
        }
        Ok(())
    }

    fn input(&mut self, input: &ValueInfo, options: &ImportOptions) -> Result<TensorId, OnnxError> {
        let bad = |reason: String| OnnxError::BadInput { input: input.name.clone(), reason };
        let ValueType::Tensor(Some(found), declared) = &input.ty else {
            return Err(bad("is not declared as a dense tensor with an element type".into()));
        };
        let dtype = held(*found).ok_or_else(|| bad(format!("is {found}, which no layer takes")))?;
        let fixed = options.shapes.get(&input.name);
        let rank = declared.as_ref().map(Vec::len).or(fixed.map(Vec::len));
        let rank = rank.ok_or_else(|| bad("has no declared rank; give its shape".into()))?;
        if let Some(fixed) = fixed.filter(|f| f.len() != rank) {
            return Err(bad(format!("has {rank} dimensions, but {fixed:?} is given as its shape")));
        }
        let dim = |i: usize| match (fixed.and_then(|f| f.get(i)), declared.as_ref().and_then(|d| d.get(i))) {
            (Some(&n), _) if n >= 0 => Ok(Dim::new(n)),
            (Some(&n), _) if n < -1 => Err(bad(format!("cannot have {n} as dimension {i}"))),
            (_, Some(Declared::Fixed(n))) => {
                i64::try_from(*n).map(Dim::new).map_err(|_| bad(format!("cannot have dimension {n}")))
            }
            (_, Some(Declared::Named(name))) => Ok(Dim::host(name.as_str())),
            _ => Ok(Dim::host(format!("{}.d{i}", input.name))),
        };
        let dims = (0..rank).map(dim).collect::<Result<Vec<_>, _>>()?;
        let ty = TensorType { dtype, dims };
        self.net.add_input(&input.name, ty).map_err(|e| bad(e.to_string()))
    }
}
