//! Shapes of a run: the checks of inputs against the engine's, and the cache of inferred shapes.

use crate::RuntimeError;
use crate::selection::RuntimeInput;
use kiln_backend::{Program, Shapes};
use kiln_ir::{Bindings, Dim, Fact, TensorType};
use kiln_plan::IoTensor;
use kiln_plan::profile::host_symbol;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of combinations of input shapes that are remembered.
const CAPACITY: usize = 32;

/// Inputs and case of runs, and their shapes.
type Known = (Vec<RuntimeInput>, u32, Arc<Shapes>);

/// Inferred shapes by what they were inferred from, the last used first.
#[derive(Default)]
pub(crate) struct ShapeCache {
    known: Mutex<Vec<Known>>,
}

impl ShapeCache {
    /// The shapes for these inputs in a case of the program, and whether they had to be inferred.
    pub(crate) fn get(
        &self,
        program: &Program,
        io: &[IoTensor],
        given: &[RuntimeInput],
        case: u32,
    ) -> Result<(Arc<Shapes>, bool), RuntimeError> {
        if let Some(found) = self.find(given, case) {
            return Ok((found, false));
        }
        let facts: Vec<Fact> = io.iter().zip(given).map(|(t, g)| fact(t, g)).collect();
        let shapes = Arc::new(Shapes::new(program.graph.infer_from(&facts)?).in_case(case));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.truncate(CAPACITY - 1);
        known.insert(0, (given.to_vec(), case, shapes.clone()));
        Ok((shapes, true))
    }

    fn find(&self, given: &[RuntimeInput], case: u32) -> Option<Arc<Shapes>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let at = known.iter().position(|(k, c, _)| k == given && *c == case)?;
        known[..=at].rotate_right(1);
        known.first().map(|(_, _, s)| s.clone())
    }
}

fn fact(t: &IoTensor, g: &RuntimeInput) -> Fact {
    match &g.content {
        Some(content) => Fact::constant(content.clone()),
        None => {
            let dims = t.packing.physical_shape(&g.shape);
            Fact::of(TensorType::new(t.dtype, dims.into_iter().map(|d| Dim::new(d as i64))))
        }
    }
}

/// Checks rank and fixed dimensions of one input.
pub(crate) fn check_shape(t: &IoTensor, shape: &[usize]) -> Result<(), RuntimeError> {
    if shape.len() != t.dims.len() {
        return Err(RuntimeError::Rank {
            name: t.name.clone(),
            found: shape.to_vec(),
            wanted_rank: t.dims.len(),
            wanted: t.dims_text(),
        });
    }
    let differs = |axis: &usize| t.dims[*axis].as_const().is_some_and(|n| n != shape[*axis] as i64);
    match (0..shape.len()).find(differs) {
        Some(axis) => Err(wrong_dim(t, shape, axis, t.dims[axis].to_string())),
        None => Ok(()),
    }
}

/// Checks that equal symbols have equal values, and dimensions made of symbols theirs.
pub(crate) fn check_symbols(io: &[IoTensor], given: &[RuntimeInput]) -> Result<(), RuntimeError> {
    let mut bindings = Bindings::default();
    let mut first: HashMap<Arc<str>, &str> = HashMap::new();
    for (t, g) in io.iter().zip(given) {
        for (d, &n) in t.dims.iter().zip(&g.shape) {
            let Some(symbol) = host_symbol(d) else { continue };
            if let Err(old) = bindings.bind(&symbol, n as i64) {
                return Err(RuntimeError::Symbol {
                    symbol: symbol.to_string(),
                    a_name: first.get(&symbol).copied().unwrap_or_default().to_owned(),
                    a: old,
                    b_name: t.name.clone(),
                    b: n as i64,
                });
            }
            first.entry(symbol).or_insert(&t.name);
        }
    }
    for (t, g) in io.iter().zip(given) {
        for (axis, d) in t.dims.iter().enumerate() {
            if let Some(wanted) = d.eval(&bindings).ok().filter(|&w| w != g.shape[axis] as i64) {
                return Err(wrong_dim(t, &g.shape, axis, format!("{d} = {wanted}")));
            }
        }
    }
    Ok(())
}

fn wrong_dim(t: &IoTensor, shape: &[usize], axis: usize, wanted: String) -> RuntimeError {
    RuntimeError::Dim { name: t.name.clone(), found: shape.to_vec(), axis, wanted }
}
