//! Element types that Kiln lacks, and the wider or narrower type that holds their values.
//!
//! DOUBLE is held as f32; UINT4 as u8, INT16 and UINT16 as i32, UINT32 and UINT64 as i64. A held integer keeps the
//! arithmetic of its own type: what may leave its range is wrapped ([`Importer::settle_types`]), so every tensor of the
//! network that stands for such a value is in its range. Values of UINT64 from 2⁶³ on are not represented. Floats on a grid are in
//! `grids.rs`.

use kiln_ir::{DType, Elems};
use kiln_network::TensorId;

use super::cx::{Cx, Outs};
use super::dtype::{caution, followed, range};
use super::importer::Importer;
use crate::error::{Refusal, unsupported};
use crate::model::{Attribute, Graph, Node};
use crate::tensor::DataType;

/// Relation of an operator's outputs to held types among its inputs.
#[derive(Clone, Copy)]
enum Rule {
    /// The first output has the type of this input and stays in its range.
    Keeps(usize),
    /// All outputs have the type of the first input and stay in its range.
    KeepsAll,
    /// The first output has the type of the first input; its values may leave the range.
    Wraps,
    /// Operator whose outputs have no type of the inputs.
    Other,
    /// The first output has the type that an attribute names, if it is there.
    Named(&'static str),
    /// Outputs are those of a graph, from this one on.
    Region(usize),
}

/// The rule of an operator. Operators without one take no held type.
fn rule(node: &Node) -> Option<Rule> {
    use Rule::{Keeps, KeepsAll, Named, Other, Region, Wraps};
    if !node.domain.is_empty() {
        return match (node.domain.as_str(), node.op.as_str()) {
            ("com.microsoft", "QuantizeLinear") => Some(Keeps(2)),
            ("com.microsoft", "DequantizeLinear") => Some(Other),
            _ => None,
        };
    }
    Some(match node.op.as_str() {
        "BitwiseAnd" | "BitwiseOr" | "BitwiseXor" | "CenterCropPad" | "Clip" | "Compress" | "Concat"
        | "ConcatFromSequence" | "DepthToSpace" | "Expand" | "Flatten" | "Gather" | "GatherElements"
        | "GatherND" | "Identity" | "Max" | "Min" | "Mod" | "Optional" | "OptionalGetElement" | "Pad"
        | "Range" | "ReduceMax" | "ReduceMin" | "Relu" | "Reshape" | "ReverseSequence" | "SequenceAt"
        | "Sign" | "Slice" | "SpaceToDepth" | "Squeeze" | "Tile" | "TopK" | "Transpose" | "Trilu"
        | "Unique" | "Unsqueeze" => Keeps(0),
        "CastLike" | "Where" => Keeps(1),
        "OneHot" => Keeps(2),
        "QuantizeLinear" => match node.attributes.contains_key("output_dtype") {
            true => Named("output_dtype"),
            false => Keeps(2),
        },
        "Split" => KeepsAll,
        "Scatter" | "ScatterElements" | "ScatterND" => match node.attr::<&str>("reduction") {
            Ok(Some("add" | "mul")) => Wraps,
            _ => Keeps(0),
        },
        "Abs" | "Add" | "BitShift" | "BitwiseNot" | "CumSum" | "Div" | "Gemm" | "MatMul" | "Mul" | "Neg"
        | "Pow" | "ReduceL1" | "ReduceProd" | "ReduceSum" | "ReduceSumSquare" | "Sub" | "Sum" => Wraps,
        "ArgMax" | "ArgMin" | "DequantizeLinear" | "Equal" | "Greater" | "GreaterOrEqual" | "Less"
        | "LessOrEqual" | "NonZero" | "OptionalHasElement" | "SequenceConstruct" | "SequenceErase"
        | "SequenceInsert" | "SequenceLength" | "Shape" | "Size" | "SplitToSequence" => Other,
        "Cast" => Named("to"),
        "Constant" | "ConstantOfShape" => Named("value"),
        "Bernoulli" => Named("dtype"),
        "EyeLike" if node.attributes.contains_key("dtype") => Named("dtype"),
        "EyeLike" => Keeps(0),
        "BlackmanWindow" | "HammingWindow" | "HannWindow" | "MelWeightMatrix" => Named("output_datatype"),
        "If" | "Scan" => Region(0),
        "Loop" => Region(1),
        _ => return None,
    })
}

/// The element type that an attribute names by number or, before version 6, by name, or that its tensor has.
pub(crate) fn named_type(node: &Node, attribute: &str) -> Option<DataType> {
    match node.attributes.get(attribute)? {
        Attribute::Int(number) => DataType::from_number(i32::try_from(*number).ok()?),
        Attribute::String(name) => DataType::from_name(std::str::from_utf8(name).ok()?),
        Attribute::Tensor(data) => Some(data.dtype),
        _ => None,
    }
}

impl Importer {
    /// Refuses a node that reads a held type and has no rule for it.
    pub(super) fn check_types(&self, node: &Node) -> Result<(), Refusal> {
        if rule(node).is_some() {
            return Ok(());
        }
        let held = node.inputs.iter().enumerate().find_map(|(i, name)| Some((i, self.held.get(name)?)));
        match held {
            Some((i, of)) => unsupported(format!(
                "input {i} ('{}') of type {of}, which is held as another type; cast it to INT32 or INT64 first",
                node.inputs[i]
            )),
            None => Ok(()),
        }
    }

    /// Finds the types of a node's outputs, wraps what may have left the range of its type, and notes what users
    /// should know.
    pub(super) fn settle_types(&mut self, node: &Node, mut outputs: Vec<TensorId>) -> Outs {
        let input = |i: usize| node.inputs.get(i).and_then(|name| self.held.get(name));
        let mut types = vec![None; outputs.len()];
        let (mut wraps, mut named) = (false, None);
        match rule(node) {
            Some(Rule::Keeps(i)) => {
                set_first(&mut types, input(i));
                wraps = node.op == "CastLike";
            }
            Some(Rule::KeepsAll) => types.fill(input(0)),
            Some(Rule::Wraps) => {
                set_first(&mut types, input(0));
                wraps = true;
            }
            Some(Rule::Named(attribute)) => {
                named = named_type(node, attribute);
                set_first(&mut types, named.filter(|of| followed(*of)));
                wraps = node.op == "Cast";
            }
            Some(Rule::Region(first)) => {
                types =
                    (0..outputs.len()).map(|i| self.held.region.get(i + first).copied().flatten()).collect();
            }
            Some(Rule::Other) | None => {}
        }
        if let Some(text) = named.filter(|_| node.op != "Constant").and_then(caution) {
            self.report.note(format!("node '{}' makes {text}", node.label()));
        }
        if let (true, Some(&Some(of)), Some(&y)) = (wraps, types.first(), outputs.first()) {
            let casts = matches!(node.op.as_str(), "Cast" | "CastLike");
            let inside = casts && self.fits(node, of);
            if !inside {
                outputs[0] = Cx::later(self, node).wrap(y, of)?;
            }
        }
        self.held.node = types;
        Ok(outputs)
    }

    /// Whether every value that the first input can have is in the range of a type.
    fn fits(&self, node: &Node, of: DataType) -> bool {
        let Some(name) = node.inputs.first() else { return false };
        let own = self.held.get(name).and_then(range);
        let dtype = self.lookup(name).flatten().map(|t| self.net.ty(t).dtype);
        let dtype = dtype.and_then(|d| if d == DType::Bool { Some((0, 1)) } else { d.int_range() });
        match (own.or(dtype), range(of)) {
            (Some((low, high)), Some((least, greatest))) => least <= low && high <= greatest,
            _ => false,
        }
    }

    /// Types that the graph of a node declares for its inputs, or those of the node's inputs at the same places.
    pub(super) fn region_types(&mut self, node: &Node, graph: &Graph) {
        let shift = usize::from(node.op == "Scan" && node.opset < 9);
        for (i, info) in graph.inputs.iter().enumerate() {
            let given = node.inputs.get(i + shift).and_then(|name| self.held.get(name));
            let of = info.ty.dtype().or(given);
            self.held.set(&info.name, of);
        }
    }
}

fn set_first(types: &mut [Option<DataType>], of: Option<DataType>) {
    if let Some(first) = types.first_mut() {
        *first = of;
    }
}

impl Cx<'_> {
    /// The type that an input has in the model, if it is held in another one.
    pub(crate) fn held_type(&self, i: usize) -> Option<DataType> {
        self.node().inputs.get(i).and_then(|name| self.importer.held.get(name))
    }

    /// An integer tensor modulo 2ⁿ, in the range of a type of n bits.
    fn wrap(&mut self, x: TensorId, of: DataType) -> Result<TensorId, Refusal> {
        let Some((low, high)) = range(of).filter(|_| of != DataType::Uint64) else { return Ok(x) };
        let dtype = self.dtype(x);
        let number = |cx: &mut Self, n: i64| cx.elems(dtype, &[], Elems::I(vec![n]));
        let mask = number(self, high - low)?;
        let bits = self.bin("bit_and", x, mask)?;
        if low == 0 {
            return Ok(bits);
        }
        let sign = number(self, -low)?;
        let flipped = self.bin("bit_xor", bits, sign)?;
        self.bin("sub", flipped, sign)
    }
}
