//! Declarations of a model about values, compared with the results of its nodes.
//!
//! A declared element type that contradicts is refused everywhere. Declared sizes that contradict are refused for outputs of
//! the model; for values inside they are a note, since tools that edit models leave stale shapes behind, which nothing reads.

use kiln_ir::TensorType;
use kiln_network::TensorId;

use super::dtype::held;
use super::importer::Importer;
use super::options::ImportOptions;
use crate::error::Refusal;
use crate::model::{Dim, Graph, ValueType};

/// Difference between a declaration and a value.
pub(super) enum Contradiction {
    /// Element types that differ.
    Type(String),
    /// Numbers of dimensions that differ, or a dimension that both know.
    Shape(String),
}

impl Importer {
    /// Compares a value with its declaration.
    pub(super) fn contradiction(&self, t: TensorId, declared: &ValueType) -> Option<Contradiction> {
        let ValueType::Tensor(dtype, dims) = declared else { return None };
        let found = self.net.ty(t);
        let text = || declared_text(declared);
        if let Some(dtype) = dtype
            && held(*dtype).is_some_and(|held| held != found.dtype)
        {
            return Some(Contradiction::Type(text()));
        }
        let dims = dims.as_ref().filter(|dims| self.ranks_differ(t).is_none() && !fits(found, dims));
        dims.map(|_| Contradiction::Shape(text()))
    }

    /// Compares a value inside of the model with its declaration, if it has one.
    pub(super) fn check_inside(
        &mut self,
        name: &str,
        t: TensorId,
        declared: &ValueType,
    ) -> Result<(), Refusal> {
        match self.contradiction(t, declared) {
            None => Ok(()),
            Some(Contradiction::Type(declared)) => {
                let found = self.net.ty(t).clone();
                Err(Refusal::DeclaredType { value: name.to_owned(), found, declared })
            }
            Some(Contradiction::Shape(declared)) => {
                let found = self.net.ty(t);
                self.report.note(format!(
                    "value '{name}' is {found}, where the model declares {declared}: the declaration is ignored"
                ));
                Ok(())
            }
        }
    }
}

fn fits(found: &TensorType, declared: &[Dim]) -> bool {
    let same = |(found, declared): (&kiln_ir::Dim, &Dim)| match (found.as_const(), declared) {
        (Some(found), Dim::Fixed(n)) => i64::try_from(*n) == Ok(found),
        _ => true,
    };
    found.rank() == declared.len() && found.dims.iter().zip(declared).all(same)
}

fn declared_text(ty: &ValueType) -> String {
    let dtype = ty.dtype().map_or("a tensor".to_owned(), |dtype| dtype.to_string());
    match ty.dims() {
        Some(dims) => {
            let dims: Vec<_> = dims.iter().map(Dim::to_string).collect();
            format!("{dtype}[{}]", dims.join(","))
        }
        None => dtype,
    }
}

/// Whether sizes of inputs are given that the model declares otherwise: then its other declarations are stale, too.
pub(super) fn overridden(graph: &Graph, options: &ImportOptions) -> bool {
    graph.required_inputs().any(|input| {
        let Some((given, declared)) = options.shapes.get(&input.name).zip(input.ty.dims()) else {
            return false;
        };
        given.iter().zip(declared).any(
            |(&n, declared)| matches!(declared, Dim::Fixed(size) if n >= 0 && u64::try_from(n) != Ok(*size)),
        )
    })
}
