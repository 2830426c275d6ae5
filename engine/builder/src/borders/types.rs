//! Types of inputs and outputs: casts, and codes of 8 bits by the range of a tensor.

use super::{Layers, enter, leave, share_range};
use crate::{BuildConfig, BuildError};
use kiln_ir::{Attrs, DType, Elems, Graph, IrError, Tensor, ValueId};
use kiln_ops::cast::CAST;
use kiln_ops::quantize::{DEQUANTIZE, QUANTIZE};
use kiln_plan::{IoMode, graph_io};
use std::collections::BTreeSet;

/// The greatest code of 8 bits.
const GREATEST: f32 = 127.0;

/// The least step of codes, so that a range of zeros has one.
const LEAST_STEP: f32 = 1e-30;

/// A layer between two types.
enum Between {
    Cast,
    /// Codes of this step.
    Codes(f32),
}

/// Brings inputs and outputs into the types that the settings ask for.
pub fn convert(g: &mut Graph, config: &mut BuildConfig) -> Result<(), BuildError> {
    check_names(g, config)?;
    if let Some(to) = config.io_type {
        let typed: BTreeSet<String> =
            config.io.iter().filter(|(_, s)| s.dtype.is_some()).map(|(name, _)| name.clone()).collect();
        let of_f32 = |g: &Graph, v: ValueId| g.ty(v).dtype == DType::F32 && !typed.contains(&g.value(v).name);
        for x in g.inputs.clone() {
            if of_f32(g, x) {
                input(g, config, x, to)?;
            }
        }
        for k in 0..g.outputs.len() {
            if let Some(&y) = g.outputs.get(k).filter(|y| of_f32(g, **y)) {
                output(g, config, y, to)?;
            }
        }
    }
    let asked = config.io.clone().into_iter();
    let asked: Vec<_> = asked.filter_map(|(name, spec)| Some((name, spec.dtype?))).collect();
    for (name, to) in asked {
        let shape_input = graph_io(g).iter().any(|t| t.is_shape_input && t.name == name);
        if let Some(&x) = g.inputs.iter().find(|&&v| g.value(v).name == name) {
            if shape_input && g.ty(x).dtype != to {
                let why = "the host reads its elements to compute shapes: keep its type".into();
                return Err(refused(g, x, to, why));
            }
            input(g, config, x, to)?;
        }
        if let Some(&y) = g.outputs.iter().find(|&&v| g.value(v).name == name) {
            output(g, config, y, to)?;
        }
    }
    Ok(())
}

/// Refuses settings of tensors that are not there.
fn check_names(g: &Graph, config: &BuildConfig) -> Result<(), BuildError> {
    let io = graph_io(g);
    match config.io.keys().find(|name| io.iter().all(|t| t.name != **name)) {
        None => Ok(()),
        Some(name) => {
            let of = |mode| io.iter().filter(move |t| t.mode == mode).map(|t| t.name.as_str());
            let list = |mode| of(mode).collect::<Vec<_>>().join(", ");
            Err(BuildError::UnknownIo {
                name: name.clone(),
                inputs: list(IoMode::Input),
                outputs: list(IoMode::Output),
            })
        }
    }
}

fn refused(g: &Graph, v: ValueId, wanted: DType, why: String) -> BuildError {
    let (tensor, found) = (g.value(v).name.clone(), g.ty(v).dtype);
    BuildError::IoType { tensor, found, wanted, why }
}

/// The layer between the network's own type of a tensor and that at the border.
fn between(g: &Graph, config: &BuildConfig, v: ValueId, to: DType) -> Result<Between, BuildError> {
    let wide = |t: DType| matches!(t, DType::F32 | DType::F16 | DType::BF16);
    let index = |t: DType| matches!(t, DType::I32 | DType::I64);
    let own = g.ty(v).dtype;
    match config.ranges.get(&g.value(v).name) {
        _ if (wide(own) && wide(to)) || (index(own) && index(to)) => Ok(Between::Cast),
        Some([lo, hi]) if wide(own) && to == DType::I8 => {
            Ok(Between::Codes((lo.abs().max(hi.abs()) / GREATEST).max(LEAST_STEP)))
        }
        None if wide(own) && to == DType::I8 => {
            let why = "codes of 8 bits need a range: set a dynamic range, or calibrate".into();
            Err(refused(g, v, to, why))
        }
        _ => {
            let why = "f32, f16 and bf16 take each other's place and, with a range, i8 theirs; i32 and i64 each other's; add \
                       a cast to the network for others";
            Err(refused(g, v, to, why.into()))
        }
    }
}

impl Layers<'_> {
    fn step(&mut self, step: f32) -> Result<Option<ValueId>, IrError> {
        self.constant(Tensor::from_elems(DType::F32, &[], &Elems::F(vec![step.into()])))
    }
}

/// An input of the type, which all who read it get in the type that it had. As an output of the graph it stays itself.
fn input(g: &mut Graph, config: &mut BuildConfig, x: ValueId, to: DType) -> Result<(), BuildError> {
    let own = g.ty(x).dtype;
    if own == to {
        return Ok(());
    }
    let between = between(g, config, x, to)?;
    let outputs = g.outputs.clone();
    let name = g.value(x).name.clone();
    g.value_mut(x).fact.ty.dtype = to;
    g.value_mut(x).fact.value = None;
    let mut l = Layers::new(g, 0, &name);
    let inner = match between {
        Between::Cast => l.add(CAST, Attrs::new().with("to", own), &[Some(x)])?,
        Between::Codes(step) => {
            let step = l.step(step)?;
            l.add(DEQUANTIZE, Attrs::new().with("to", own), &[Some(x), step])?
        }
    };
    enter(g, x, inner, outputs);
    share_range(config, &name, &g.value(inner).name);
    Ok(())
}

/// The value in the type, in all places where it is an output.
fn output(g: &mut Graph, config: &mut BuildConfig, y: ValueId, to: DType) -> Result<(), BuildError> {
    if g.ty(y).dtype == to {
        return Ok(());
    }
    let between = between(g, config, y, to)?;
    let name = g.value(y).name.clone();
    let end = g.order().len();
    let mut l = Layers::new(g, end, &name);
    let outer = match between {
        Between::Cast => l.add(CAST, Attrs::new().with("to", to), &[Some(y)])?,
        Between::Codes(step) => {
            let step = l.step(step)?;
            l.add(QUANTIZE, Attrs::new().with("to", to), &[Some(y), step])?
        }
    };
    leave(g, y, outer);
    share_range(config, &name, &g.value(y).name);
    Ok(())
}
