//! Conversion of the network's inputs and outputs to another type: casts after inputs and in front of
//! outputs, which cancel where the layers there run in the type as well.

use super::writer::cast;
use kiln_ir::{DType, Graph, IrError, ValueId};

/// Sets the type of all inputs and outputs of f32; their names stay.
pub fn apply(g: &mut Graph, to: DType) -> Result<(), IrError> {
    for x in g.inputs.clone() {
        if g.ty(x).dtype == DType::F32 {
            input(g, x, to)?;
        }
    }
    for k in 0..g.outputs.len() {
        let Some(&y) = g.outputs.get(k).filter(|y| g.ty(**y).dtype == DType::F32) else { continue };
        output(g, y, to)?;
    }
    Ok(())
}

/// An input of the type, which is widened for all who read it. As an output of the graph it stays itself.
pub fn input(g: &mut Graph, x: ValueId, to: DType) -> Result<(), IrError> {
    let outputs = g.outputs.clone();
    g.value_mut(x).fact.ty.dtype = to;
    let name = g.unique_name(&format!("{}.wide", g.value(x).name));
    let wide = cast(g, 0, &name, x, DType::F32)?;
    g.replace_uses(x, wide);
    g.outputs = outputs;
    if let Some(id) = g.producer(wide).map(|(id, _)| id)
        && let Some(node) = g.get_mut(id)
    {
        node.inputs = vec![Some(x)];
    }
    Ok(())
}

/// The value in the type, in all places where it is an output.
pub fn output(g: &mut Graph, y: ValueId, to: DType) -> Result<(), IrError> {
    let name = g.value(y).name.clone();
    let wide = g.unique_name(&format!("{name}.wide"));
    let end = g.order().len();
    let narrow = cast(g, end, &format!("{name}.narrow"), y, to)?;
    g.value_mut(y).name = wide;
    g.value_mut(narrow).name = name;
    g.outputs.iter_mut().filter(|v| **v == y).for_each(|v| *v = narrow);
    Ok(())
}
