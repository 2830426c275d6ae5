//! Conversion of encoded attributes to checked ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::convert::Converter;
use super::scope::Text;
use super::{Attribute, Graph, Node, SparseTensor, ValueType};
use crate::error::{NodeFault, OnnxError};
use crate::proto::attribute_proto::AttributeType;
use crate::proto::{AttributeProto, GraphProto, NodeProto, SparseTensorProto, TensorProto};
use crate::tensor::TensorData;

impl Converter<'_> {
    /// The attributes of a node. References are resolved; one to an attribute that the call leaves out and that has no
    /// default leaves the attribute out.
    pub fn attributes(
        &mut self,
        proto: &NodeProto,
        node: &Node,
        text: &mut Text<'_>,
    ) -> Result<BTreeMap<String, Attribute>, OnnxError> {
        let mut attributes = BTreeMap::new();
        for (index, attribute) in proto.attribute.iter().enumerate() {
            if attribute.name.is_empty() {
                return Err(node.error(NodeFault::UnnamedAttribute(index)));
            }
            let Some(value) = self.attribute(attribute, node, text)? else { continue };
            if attributes.insert(attribute.name.clone(), value).is_some() {
                return Err(node.error(NodeFault::DuplicateAttribute(attribute.name.clone())));
            }
        }
        Ok(attributes)
    }

    /// The value of one attribute.
    pub fn attribute(
        &mut self,
        proto: &AttributeProto,
        node: &Node,
        text: &mut Text<'_>,
    ) -> Result<Option<Attribute>, OnnxError> {
        if !proto.ref_attr_name.is_empty() {
            return referred(proto, node, text);
        }
        self.value(proto, node, text).map(Some)
    }

    fn value(
        &mut self,
        proto: &AttributeProto,
        node: &Node,
        text: &mut Text<'_>,
    ) -> Result<Attribute, OnnxError> {
        let label = || format!("{}/{}", node.label(), proto.name);
        let none = || bad(proto, node, "has a type but no value");
        Ok(match attribute_type(proto, node)? {
            AttributeType::Float => Attribute::Float(proto.f),
            AttributeType::Int => Attribute::Int(proto.i),
            AttributeType::String => Attribute::String(proto.s.clone()),
            AttributeType::Floats => Attribute::Floats(proto.floats.clone()),
            AttributeType::Ints => Attribute::Ints(proto.ints.clone()),
            AttributeType::Strings => Attribute::Strings(proto.strings.clone()),
            AttributeType::Tensor => {
                Attribute::Tensor(self.tensor(proto.t.as_ref().ok_or_else(none)?, &label(), text)?)
            }
            AttributeType::Tensors => Attribute::Tensors(self.tensors(&proto.tensors, &label(), text)?),
            AttributeType::Graph => {
                Attribute::Graph(self.subgraph(proto.g.as_ref().ok_or_else(none)?, text)?)
            }
            AttributeType::Graphs => {
                let graphs = proto.graphs.iter().map(|graph| self.subgraph(graph, text));
                Attribute::Graphs(graphs.collect::<Result<_, _>>()?)
            }
            AttributeType::SparseTensor => {
                let sparse = proto.sparse_tensor.as_ref().ok_or_else(none)?;
                Attribute::SparseTensor(Box::new(self.sparse(sparse, &label(), text)?))
            }
            AttributeType::SparseTensors => {
                let list = proto.sparse_tensors.iter().map(|sparse| self.sparse(sparse, &label(), text));
                Attribute::SparseTensors(list.collect::<Result<_, _>>()?)
            }
            AttributeType::TypeProto => {
                Attribute::Type(Box::new(ValueType::read(proto.tp.as_deref(), &label())?))
            }
            AttributeType::TypeProtos => {
                let types = proto.type_protos.iter().map(|ty| ValueType::read(Some(ty), &label()));
                Attribute::Types(types.collect::<Result<_, _>>()?)
            }
            AttributeType::Undefined => return Err(bad(proto, node, "has no type")),
        })
    }

    fn subgraph(&mut self, proto: &GraphProto, text: &mut Text<'_>) -> Result<Arc<Graph>, OnnxError> {
        self.graph(proto, text).map(Arc::new)
    }

    fn tensors(
        &mut self,
        list: &[TensorProto],
        label: &str,
        text: &Text<'_>,
    ) -> Result<Vec<TensorData>, OnnxError> {
        list.iter().map(|tensor| self.tensor(tensor, label, text)).collect()
    }

    fn sparse(
        &mut self,
        proto: &SparseTensorProto,
        label: &str,
        text: &Text<'_>,
    ) -> Result<SparseTensor, OnnxError> {
        let sparse = SparseTensor::read(proto, label, self.file.external())?;
        self.charge(text, (sparse.values.bytes.len() + sparse.indices.bytes.len()) as u64)?;
        Ok(sparse)
    }
}

/// The argument of the call that an attribute inside a function refers to.
fn referred(proto: &AttributeProto, node: &Node, text: &Text<'_>) -> Result<Option<Attribute>, OnnxError> {
    let unknown = |function: &str| {
        node.error(NodeFault::UnknownReference {
            attribute: proto.name.clone(),
            target: proto.ref_attr_name.clone(),
            function: function.to_owned(),
        })
    };
    let frame = text.frame.as_ref().ok_or_else(|| unknown("a function: the node is part of none"))?;
    let Some(value) = frame.attributes.get(&proto.ref_attr_name) else {
        let known = frame.declared.contains(&proto.ref_attr_name);
        return if known { Ok(None) } else { Err(unknown(&frame.function)) };
    };
    let wanted = AttributeType::try_from(proto.r#type).unwrap_or(AttributeType::Undefined);
    if wanted != AttributeType::Undefined && wanted != type_of(value) {
        return Err(node.error(NodeFault::AttributeType {
            attribute: proto.ref_attr_name.clone(),
            found: value.kind(),
            wanted: wanted.as_str_name(),
        }));
    }
    Ok(Some(value.clone()))
}

fn type_of(attribute: &Attribute) -> AttributeType {
    match attribute {
        Attribute::Float(_) => AttributeType::Float,
        Attribute::Int(_) => AttributeType::Int,
        Attribute::String(_) => AttributeType::String,
        Attribute::Tensor(_) => AttributeType::Tensor,
        Attribute::Graph(_) => AttributeType::Graph,
        Attribute::SparseTensor(_) => AttributeType::SparseTensor,
        Attribute::Type(_) => AttributeType::TypeProto,
        Attribute::Floats(_) => AttributeType::Floats,
        Attribute::Ints(_) => AttributeType::Ints,
        Attribute::Strings(_) => AttributeType::Strings,
        Attribute::Tensors(_) => AttributeType::Tensors,
        Attribute::Graphs(_) => AttributeType::Graphs,
        Attribute::SparseTensors(_) => AttributeType::SparseTensors,
        Attribute::Types(_) => AttributeType::TypeProtos,
    }
}

/// The declared type; the earliest models declare none, and the one field in use decides.
fn attribute_type(proto: &AttributeProto, node: &Node) -> Result<AttributeType, OnnxError> {
    match AttributeType::try_from(proto.r#type) {
        Ok(AttributeType::Undefined) => {}
        Ok(ty) => return Ok(ty),
        Err(_) => return Err(bad(proto, node, &format!("has type {}, which is unknown", proto.r#type))),
    }
    let used = [
        (proto.f != 0.0, AttributeType::Float),
        (proto.i != 0, AttributeType::Int),
        (!proto.s.is_empty(), AttributeType::String),
        (proto.t.is_some(), AttributeType::Tensor),
        (proto.g.is_some(), AttributeType::Graph),
        (!proto.floats.is_empty(), AttributeType::Floats),
        (!proto.ints.is_empty(), AttributeType::Ints),
        (!proto.strings.is_empty(), AttributeType::Strings),
        (!proto.tensors.is_empty(), AttributeType::Tensors),
        (!proto.graphs.is_empty(), AttributeType::Graphs),
    ];
    let mut used = used.into_iter().filter(|(used, _)| *used).map(|(_, ty)| ty);
    match (used.next(), used.next()) {
        (Some(ty), None) => Ok(ty),
        _ => Err(bad(proto, node, "declares no type, and its fields do not tell it")),
    }
}

fn bad(proto: &AttributeProto, node: &Node, reason: &str) -> OnnxError {
    node.error(NodeFault::BadAttribute { attribute: proto.name.clone(), reason: reason.to_owned() })
}
