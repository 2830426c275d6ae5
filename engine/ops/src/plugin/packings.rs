//! Formats of the tensors of a plug-in layer: the operator has them in memory's order, its library by their own dimensions.

use super::types::{self, Combination};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::{Dim, Symbol};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::format::{self, Packing};
use kiln_ir::tensor::Tensor;
use kiln_ir::ty::TensorType;
use minicbor::{Decode, Encode};

/// More tensors are refused.
const MOST: usize = 2048;

/// Formats of inputs and outputs; none where all are linear.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Packings {
    /// Formats of the inputs.
    #[n(0)]
    pub inputs: Vec<Packing>,
    /// Formats of the outputs.
    #[n(1)]
    pub outputs: Vec<Packing>,
}

fn number(n: u64) -> Dim {
    Dim::new(i64::try_from(n).unwrap_or(i64::MAX))
}

/// The size that a symbol "i<input>.d<axis>" stands for.
fn size(inputs: &[TensorType], s: &Symbol) -> Option<Dim> {
    match super::formula::input_part(&s.name)? {
        (i, super::formula::InputPart::Size(axis)) => inputs.get(i)?.dims.get(axis).cloned(),
        _ => None,
    }
}

impl Packings {
    /// The formats that a combination says, if tensors of these types can have them.
    fn of(c: &Combination, inputs: &[TensorType], outputs: &[TensorType]) -> Option<Packings> {
        if c.is_linear() {
            return Some(Packings::default());
        }
        let known = |ty: &TensorType| -> Vec<Dim> {
            ty.dims.iter().map(|d| d.substitute(&|s: &Symbol| size(inputs, s))).collect()
        };
        let inputs_as = inputs.iter().enumerate();
        let inputs_as = inputs_as.map(|(i, t)| Packing::new(c.input_format(i), t.dtype, &t.dims).ok());
        let outputs_as = outputs.iter().enumerate();
        let outputs_as = outputs_as.map(|(j, t)| Packing::new(c.output_format(j), t.dtype, &known(t)).ok());
        Some(Packings {
            inputs: inputs_as.collect::<Option<_>>()?,
            outputs: outputs_as.collect::<Option<_>>()?,
        })
    }

    /// The first of the combinations that takes these inputs in its formats, and these formats.
    pub fn choose<'a>(
        all: &'a [Combination],
        inputs: &[TensorType],
        outputs: &[TensorType],
    ) -> Result<(&'a Combination, Packings), OpError> {
        let dtypes: Vec<DType> = inputs.iter().map(|t| t.dtype).collect();
        let made: Vec<DType> = outputs.iter().map(|t| t.dtype).collect();
        let fits = |c: &Combination| c.outputs == made && Packings::of(c, inputs, outputs).is_some();
        let found = types::first(all, &dtypes, fits).map_err(|e| {
            let types: Vec<String> = inputs.iter().map(TensorType::to_string).collect();
            OpError::Value(format!(
                "{e}; formats need enough dimensions, and channels that are known: {}",
                types.join(", ")
            ))
        })?;
        Ok((found, Packings::of(found, inputs, outputs).unwrap_or_default()))
    }

    /// The attribute of an operator.
    pub fn to_attr(&self) -> Option<Attr> {
        let plain = self.inputs.iter().chain(&self.outputs).all(|p| p.is_linear());
        (!plain).then(|| Attr::Bytes(minicbor::to_vec(self).unwrap_or_default()))
    }

    /// The formats of an operator `plugin`.
    pub fn of_attrs(attrs: &Attrs) -> Result<Packings, OpError> {
        let wrong = |found: String| OpError::Attr {
            name: "packings".into(),
            found,
            wanted: format!("a CBOR map of formats of at most {MOST} inputs and outputs"),
        };
        match attrs.get("packings") {
            Some(Attr::Bytes(b)) if !b.is_empty() => {
                let p: Packings = minicbor::decode(b).map_err(|e| wrong(e.to_string()))?;
                match p.inputs.len().max(p.outputs.len()) <= MOST {
                    true => Ok(p),
                    false => Err(wrong("more".into())),
                }
            }
            _ => Ok(Packings::default()),
        }
    }

    /// The format of an input.
    pub fn input(&self, i: usize) -> Packing {
        self.inputs.get(i).copied().unwrap_or_default()
    }

    /// The format of an output.
    pub fn output(&self, j: usize) -> Packing {
        self.outputs.get(j).copied().unwrap_or_default()
    }

    /// The dimensions of a tensor of this shape in memory.
    pub fn dims(p: Packing, physical: &[Dim]) -> Result<Vec<Dim>, OpError> {
        p.logical(physical, number).ok_or_else(|| {
            OpError::Value(format!(
                "a tensor of {} dimensions in memory in the format {}",
                physical.len(),
                p.format
            ))
        })
    }

    /// The shape in memory of a tensor of these dimensions; refused where it is not what the format was chosen for.
    pub fn physical(p: Packing, ty: &TensorType) -> Result<Vec<Dim>, OpError> {
        let refused =
            |e: &dyn std::fmt::Display| OpError::Value(format!("an output in the format {}: {e}", p.format));
        match Packing::new(p.format, ty.dtype, &ty.dims) {
            Ok(found) if found == p => Ok(p.physical(&ty.dims, number)),
            Ok(_) => Err(refused(&"another number of channels")),
            Err(e) => Err(refused(&e)),
        }
    }

    /// The types of results in the linear format.
    pub fn linear_types(&self, types: &[TensorType]) -> Result<Vec<TensorType>, OpError> {
        let one = |(j, t): (usize, &TensorType)| {
            Ok(TensorType { dtype: t.dtype, dims: Packings::dims(self.output(j), &t.dims)? })
        };
        types.iter().enumerate().map(one).collect()
    }

    /// Inputs in the linear format.
    pub fn unpack(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        let one = |(i, t): (usize, &Tensor)| match self.input(i) {
            p if p.is_linear() => Ok(t.clone()),
            p => {
                let refused = |e: &dyn std::fmt::Display| OpError::Value(format!("input {i}: {e}"));
                let shape = p.logical_shape(t.shape()).ok_or_else(|| refused(&"too few dimensions"))?;
                format::unpack(t, p.format, &shape).map_err(|e| refused(&e))
            }
        };
        inputs.iter().enumerate().map(one).collect()
    }

    /// Inputs in their formats.
    pub fn pack(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        packed(inputs, |i| self.input(i), "input")
    }

    /// Outputs in their formats.
    pub fn pack_outputs(&self, outputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        packed(outputs, |j| self.output(j), "output")
    }
}

fn packed(all: &[Tensor], of: impl Fn(usize) -> Packing, what: &str) -> Result<Vec<Tensor>, OpError> {
    let one = |(i, t): (usize, &Tensor)| match of(i) {
        p if p.is_linear() => Ok(t.clone()),
        p => format::pack(t, p.format).map_err(|e| OpError::Value(format!("{what} {i}: {e}"))),
    };
    all.iter().enumerate().map(one).collect()
}
