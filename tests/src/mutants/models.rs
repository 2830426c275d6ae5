//! Changes to ONNX models that keep the file well-formed: attributes, shapes, contents of small tensors, types, operators,
//! names and versions. What they reach are the checks of the importer, shape rules and kernels, not the parser.

use kiln_ir::problem::Rng;
use kiln_onnx::proto::*;
use prost::Message;

/// Numbers at which programs stumble.
const NUMBERS: [i64; 18] = [
    0,
    1,
    2,
    3,
    -1,
    -2,
    7,
    64,
    127,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    -(1 << 31),
    1 << 40,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
];

/// Operators that a node may become; beside them, those that the model has.
const OPERATORS: [&str; 30] = [
    "Add",
    "And",
    "ArgMax",
    "Cast",
    "Concat",
    "ConstantOfShape",
    "CumSum",
    "Div",
    "Expand",
    "Flatten",
    "Gather",
    "GatherND",
    "Identity",
    "MatMul",
    "Mod",
    "NonZero",
    "OneHot",
    "Pad",
    "Pow",
    "Range",
    "ReduceSum",
    "Reshape",
    "Resize",
    "Shape",
    "Slice",
    "Softmax",
    "Squeeze",
    "Tile",
    "TopK",
    "Unsqueeze",
];

/// A copy of a model with one to four changes; `None` if it is not a model. A model is read as tolerantly as protobuf allows.
pub fn mutate(model: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let mut model = ModelProto::decode(model).ok()?;
    for _ in 0..rng.int(1, 4) {
        if rng.int(0, 40) == 0 {
            let version = rng.int(1, 28);
            model.opset_import.iter_mut().take(1).for_each(|o| o.version = version);
        }
        change(model.graph.as_mut()?, rng, 0);
    }
    Some(model.encode_to_vec())
}

/// A model as a file.
pub fn encoded(model: &ModelProto) -> Vec<u8> {
    model.encode_to_vec()
}

/// The index of an element, drawn at random.
fn any<T>(of: &[T], rng: &mut Rng) -> Option<usize> {
    (!of.is_empty()).then(|| rng.int(0, of.len() as i64 - 1) as usize)
}

/// A number near the old one, or one at which programs stumble.
fn number(old: i64, rng: &mut Rng) -> i64 {
    match rng.int(0, 3) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        2 => rng.int(-4, 8),
        _ => rng.pick(&NUMBERS).unwrap_or(0),
    }
}

fn change(g: &mut GraphProto, rng: &mut Rng, depth: usize) -> Option<()> {
    let inner = g.node.iter().position(|n| n.attribute.iter().any(|a| a.g.is_some()));
    if let Some(at) = inner.filter(|_| depth < 4 && rng.int(0, 1) == 0) {
        let body = g.node[at].attribute.iter_mut().filter_map(|a| a.g.as_mut());
        let mut bodies: Vec<_> = body.collect();
        let which = any(&bodies, rng)?;
        return change(bodies.swap_remove(which), rng, depth + 1);
    }
    match rng.int(0, 11) {
        0..=2 => {
            let at = any(&g.node, rng)?;
            attribute(&mut g.node[at], rng)
        }
        3 | 4 => {
            let at = any(&g.initializer, rng)?;
            tensor(&mut g.initializer[at], rng)
        }
        5 | 6 => operand(g, rng),
        7 => operator(g, rng),
        8 => declared(g, rng),
        9 => {
            let at = any(&g.node, rng)?;
            g.node.remove(at);
            Some(())
        }
        10 => {
            let at = any(&g.node, rng)?;
            let node = g.node[at].clone();
            let to = any(&g.node, rng)?;
            g.node[to] = NodeProto { output: g.node[to].output.clone(), ..node };
            Some(())
        }
        _ => {
            let (to, from) = (any(&g.output, rng)?, any(&g.node, rng)?);
            g.output[to].name = g.node[from].output.first()?.clone();
            g.output[to].r#type = None;
            Some(())
        }
    }
}

fn attribute(node: &mut NodeProto, rng: &mut Rng) -> Option<()> {
    let at = any(&node.attribute, rng)?;
    if rng.int(0, 9) == 0 {
        node.attribute.remove(at);
        return Some(());
    }
    let a = &mut node.attribute[at];
    if let Some(t) = a.t.as_mut() {
        return tensor(t, rng);
    }
    if !a.s.is_empty() && rng.int(0, 1) == 0 {
        let words = [
            "",
            "SAME_UPPER",
            "SAME_LOWER",
            "VALID",
            "constant",
            "edge",
            "reflect",
            "wrap",
            "linear",
            "cubic",
        ];
        a.s = rng.pick(&words)?.into();
        return Some(());
    }
    if !a.ints.is_empty() {
        integers(&mut a.ints, rng);
    } else if !a.floats.is_empty() || a.f != 0.0 {
        let value = rng.pick(&[0.0, -1.0, 1e-30, 1e30, f32::INFINITY, f32::NAN, 0.5])?;
        a.floats.iter_mut().take(1).for_each(|f| *f = value);
        a.f = value;
    } else {
        a.i = number(a.i, rng);
    }
    Some(())
}

fn integers(all: &mut Vec<i64>, rng: &mut Rng) {
    match (rng.int(0, 5), any(all, rng)) {
        (0, Some(at)) => drop(all.remove(at)),
        (1, _) => all.push(number(1, rng)),
        (_, Some(at)) => all[at] = number(all[at], rng),
        (_, None) => {}
    }
}

/// Changes the shape, the type, or the contents of a tensor of integers.
fn tensor(t: &mut TensorProto, rng: &mut Rng) -> Option<()> {
    match rng.int(0, 4) {
        0 => integers(&mut t.dims, rng),
        1 => t.data_type = rng.int(0, 24) as i32,
        _ if t.data_type == tensor_proto::DataType::Int64 as i32 => {
            let raw = !t.raw_data.is_empty();
            let of = |b: &[u8]| b.try_into().map(i64::from_le_bytes).unwrap_or(0);
            let mut all: Vec<i64> =
                if raw { t.raw_data.chunks(8).map(of).collect() } else { t.int64_data.clone() };
            let before = all.len();
            integers(&mut all, rng);
            if t.dims.len() == 1 && all.len() != before {
                t.dims[0] = all.len() as i64;
            }
            match raw {
                true => t.raw_data = all.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>().into(),
                false => t.int64_data = all,
            }
        }
        _ => {
            let mut bytes = t.raw_data.to_vec();
            let at = any(&bytes, rng)?;
            bytes[at] = rng.pick(&[0, 1, 127, 128, 255])?;
            t.raw_data = bytes.into();
        }
    }
    Some(())
}

/// Every name that a graph has.
fn names(g: &GraphProto) -> Vec<&String> {
    let made = g.node.iter().flat_map(|n| &n.output);
    made.chain(g.initializer.iter().map(|t| &t.name)).chain(g.input.iter().map(|i| &i.name)).collect()
}

/// An input of a node becomes another, is left out, added or exchanged with its neighbour.
fn operand(g: &mut GraphProto, rng: &mut Rng) -> Option<()> {
    let at = any(&g.node, rng)?;
    let all = names(g);
    let other = all[any(&all, rng)?].clone();
    let inputs = &mut g.node[at].input;
    match (rng.int(0, 6), any(inputs, rng)) {
        (0, _) => inputs.push(other),
        (1, Some(_)) => drop(inputs.pop()),
        (2, Some(i)) => inputs[i].clear(),
        (3, Some(i)) if i > 0 => inputs.swap(i, i - 1),
        (_, Some(i)) => inputs[i] = other,
        (_, None) => {}
    }
    Some(())
}

fn operator(g: &mut GraphProto, rng: &mut Rng) -> Option<()> {
    let (to, from) = (any(&g.node, rng)?, any(&g.node, rng)?);
    g.node[to].op_type = match rng.int(0, 1) {
        0 => g.node[from].op_type.clone(),
        _ => rng.pick(&OPERATORS)?.to_owned(),
    };
    g.node[to].domain = String::new();
    if rng.int(0, 1) == 0 {
        g.node[to].attribute.clear();
    }
    Some(())
}

/// Changes the type or shape of an input.
fn declared(g: &mut GraphProto, rng: &mut Rng) -> Option<()> {
    let at = any(&g.input, rng)?;
    let Some(type_proto::Value::TensorType(t)) = g.input[at].r#type.as_mut()?.value.as_mut() else {
        return None;
    };
    let dims = &mut t.shape.get_or_insert_default().dim;
    use tensor_shape_proto::dimension::Value;
    match (rng.int(0, 4), any(dims, rng)) {
        (0, _) => t.elem_type = rng.int(0, 24) as i32,
        (1, Some(i)) => drop(dims.remove(i)),
        (2, Some(i)) => dims[i].value = Some(Value::DimParam(rng.pick(&["n", "m"])?.to_owned())),
        (_, Some(i)) => {
            let old = match dims[i].value {
                Some(Value::DimValue(n)) => n,
                _ => 1,
            };
            dims[i].value = Some(Value::DimValue(number(old, rng)));
        }
        (_, None) => dims.push(Default::default()),
    }
    Some(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test panics")]
mod tests {
    use super::*;

    /// Changes stay models, differ from each other, and some of them are still valid.
    #[test]
    fn changed_models_are_models() {
        let model = std::fs::read(crate::models::data("control_flow/sum_even.onnx")).unwrap();
        let (mut all, mut valid) = (std::collections::BTreeSet::new(), 0);
        for seed in 0..200 {
            let changed = mutate(&model, &mut Rng::new(seed)).unwrap();
            let file = kiln_onnx::ModelFile::from_bytes(changed.clone(), None);
            let checked = file.and_then(|f| kiln_onnx::Model::check(&f));
            let done = checked.and_then(|m| kiln_onnx::import(&m, &Default::default()));
            valid += usize::from(done.is_ok());
            all.insert(changed);
        }
        assert!(all.len() > 150 && (10..190).contains(&valid), "{} differ, {valid} are valid", all.len());
        assert!(mutate(b"\x0a\xff\xff", &mut Rng::new(1)).is_none());
    }
}
