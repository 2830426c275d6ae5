//! Conversion of a graph's inputs and outputs of f32 to another type: casts after inputs and in front of outputs.

use super::writer::cast;
use kiln_ir::{DType, Graph, IrError, ValueId};

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
