//! Smaller ONNX models: the networks of exporters without their weights' bytes, and parts of networks.

use kiln_onnx::proto::*;
use std::collections::{BTreeMap, BTreeSet};

/// Large constants become filled tensors of their shapes and types (`ConstantOfShape`): a network of 100 kB has 10 kB then.
/// `None` if a large constant has a type that cannot be filled, or dims that are not those of a tensor.
pub fn without_weights(model: &ModelProto) -> Option<ModelProto> {
    const LARGE: usize = 96;
    let mut out = model.clone();
    let g = out.graph.as_mut()?;
    let (large, mut small): (Vec<_>, Vec<_>) =
        std::mem::take(&mut g.initializer).into_iter().partition(|t| t.raw_data.len() > LARGE);
    let mut shapes: BTreeMap<Vec<i64>, String> = BTreeMap::new();
    let mut nodes = Vec::new();
    for t in large {
        let volume: i64 = t.dims.iter().try_fold(1i64, |a, &d| a.checked_mul(d)).filter(|&v| v > 0)?;
        let element = t.raw_data.len() / usize::try_from(volume).ok()?;
        let count = shapes.len();
        let shape = shapes.entry(t.dims.clone()).or_insert_with(|| {
            small.push(integers(&format!("shape{count}"), &t.dims));
            format!("shape{count}")
        });
        let first = t.raw_data.get(..element.max(1))?.to_vec();
        let value = TensorProto {
            dims: vec![1],
            data_type: t.data_type,
            raw_data: first.into(),
            ..Default::default()
        };
        nodes.push(NodeProto {
            op_type: "ConstantOfShape".into(),
            input: vec![shape.clone()],
            output: vec![t.name],
            attribute: vec![AttributeProto {
                name: "value".into(),
                r#type: attribute_proto::AttributeType::Tensor as i32,
                t: Some(Box::new(value)),
                ..Default::default()
            }],
            ..Default::default()
        });
    }
    nodes.append(&mut g.node);
    g.node = nodes;
    g.initializer = small;
    g.value_info.clear();
    Some(out)
}

fn integers(name: &str, values: &[i64]) -> TensorProto {
    let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    TensorProto {
        name: name.into(),
        dims: vec![values.len() as i64],
        data_type: tensor_proto::DataType::Int64 as i32,
        raw_data: raw.into(),
        ..Default::default()
    }
}

/// The part of a network that the first `count` nodes make up, whose output is that of the last of them; what that does not
/// need is left out. `None` if there are not so many nodes.
pub fn first_nodes(model: &ModelProto, count: usize) -> Option<ModelProto> {
    let mut out = model.clone();
    let g = out.graph.as_mut()?;
    let last = g.node.get(count.checked_sub(1)?)?.output.first()?.clone();
    let mut wanted = BTreeSet::from([last.clone()]);
    let mut kept = Vec::new();
    for node in g.node.drain(..count).rev() {
        if node.output.iter().any(|o| wanted.contains(o)) {
            wanted.extend(node.input.iter().cloned());
            node.attribute.iter().filter_map(|a| a.g.as_ref()).for_each(|b| captured(b, &mut wanted));
            kept.push(node);
        }
    }
    kept.reverse();
    g.node = kept;
    g.initializer.retain(|t| wanted.contains(&t.name));
    g.input.retain(|i| wanted.contains(&i.name));
    g.value_info.clear();
    g.output = vec![ValueInfoProto { name: last, ..Default::default() }];
    Some(out)
}

/// Names that a body reads, its own among them.
fn captured(body: &GraphProto, names: &mut BTreeSet<String>) {
    for node in &body.node {
        names.extend(node.input.iter().cloned());
        node.attribute.iter().filter_map(|a| a.g.as_ref()).for_each(|b| captured(b, names));
    }
    names.extend(body.output.iter().map(|o| o.name.clone()));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test panics")]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn cut_models_import() {
        let bytes = std::fs::read(crate::models::data("exports/vit.onnx")).unwrap();
        let whole = without_weights(&ModelProto::decode(&bytes[..]).unwrap()).unwrap();
        assert!(whole.encoded_len() < bytes.len() / 2, "{}", whole.encoded_len());
        let nodes = whole.graph.as_ref().unwrap().node.len();
        for count in [nodes / 2, nodes] {
            let part = first_nodes(&whole, count).unwrap();
            let model = kiln_onnx::Model::check(&kiln_onnx::ModelFile::from_proto(part)).unwrap();
            kiln_onnx::import(&model, &Default::default()).unwrap();
        }
        assert!(first_nodes(&whole, nodes + 1).is_none());
    }
}
