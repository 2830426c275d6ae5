//! Epilogues that libraries fuse with a product or convolution: additions and relu.

use kiln_codegen::site::Site;
use kiln_ir::ValueId;

/// Pointwise operator after the anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Plus an extra, by position.
    Add(usize),
    Relu,
}

/// Returns the operators after the anchor, if they are a chain of additions and relu in the type of the anchor's result.
pub fn chain(site: &Site<'_>) -> Option<Vec<Behind>> {
    let (at, anchor) = site.anchor?;
    let &[result] = &anchor.outputs[..] else { return None };
    let dtype = site.graph.ty(result).dtype;
    let mut last = result;
    let mut all = Vec::new();
    for (_, node) in site.graph.nodes().skip(at + 1) {
        let given: Vec<ValueId> = node.inputs.iter().map_while(|v| *v).collect();
        let next = *node.outputs.first()?;
        if site.graph.ty(next).dtype != dtype {
            return None;
        }
        all.push(match (node.op.name(), &given[..]) {
            ("relu", &[x]) if x == last => Behind::Relu,
            ("add", &[a, b]) if (a == last) != (b == last) => {
                let other = if a == last { b } else { a };
                if site.graph.ty(other).dtype != dtype {
                    return None;
                }
                Behind::Add(site.extras.iter().position(|&e| e == other)?)
            }
            _ => return None,
        });
        last = next;
    }
    Some(all)
}

/// Sizes of an extra, if they are known.
pub fn extra_dims(site: &Site<'_>, extra: usize) -> Option<Vec<usize>> {
    site.graph.ty(*site.extras.get(extra)?).static_dims()
}

/// Sizes of the anchor's i-th input, if they are known.
pub fn input_dims(site: &Site<'_>, i: usize) -> Option<Vec<usize>> {
    site.graph.ty((*site.anchor?.1.inputs.get(i)?)?).static_dims()
}

/// Sizes of the anchor's result, if they are known.
pub fn output_dims(site: &Site<'_>) -> Option<Vec<usize>> {
    site.graph.ty(*site.anchor?.1.outputs.first()?).static_dims()
}
