//! Fields of the schema that hold messages, and the memory that a decoded message or list entry takes.
//!
//! The table repeats onnx.proto3 as far as module `wire` needs it; a test compares both.

use std::mem::size_of;

use bytes::Bytes;

use crate::proto::*;

/// A message type: its name, its size when decoded, and its fields that matter for nesting or memory.
pub(crate) struct Layout {
    pub name: &'static str,
    pub size: usize,
    pub fields: &'static [(u32, Field)],
}

/// Decoded form of a length-delimited or repeated field.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    /// A nested message.
    Message(&'static Layout),
    /// Entries of strings or bytes, each of this size beside its content.
    List(usize),
    /// Numbers, packed or one by one: the size of one in memory and the least size of one when packed.
    Numbers(usize, usize),
}

use Field::{List, Message, Numbers};

const STRING: Field = List(size_of::<String>());
const BYTES: Field = List(size_of::<Bytes>());

const fn layout<T>(name: &'static str, fields: &'static [(u32, Field)]) -> Layout {
    Layout { name, size: size_of::<T>(), fields }
}

pub(crate) static MODEL: Layout = layout::<ModelProto>(
    "ModelProto",
    &[(7, Message(&GRAPH)), (8, Message(&OPSET)), (14, Message(&ENTRY)), (25, Message(&FUNCTION))],
);
static OPSET: Layout = layout::<OperatorSetIdProto>("OperatorSetIdProto", &[]);
static ENTRY: Layout = layout::<StringStringEntryProto>("StringStringEntryProto", &[]);
static GRAPH: Layout = layout::<GraphProto>(
    "GraphProto",
    &[
        (1, Message(&NODE)),
        (5, Message(&TENSOR)),
        (11, Message(&VALUE_INFO)),
        (12, Message(&VALUE_INFO)),
        (13, Message(&VALUE_INFO)),
        (14, Message(&ANNOTATION)),
        (15, Message(&SPARSE)),
        (16, Message(&ENTRY)),
    ],
);
static ANNOTATION: Layout = layout::<TensorAnnotation>("TensorAnnotation", &[(2, Message(&ENTRY))]);
static NODE: Layout = layout::<NodeProto>(
    "NodeProto",
    &[(1, STRING), (2, STRING), (5, Message(&ATTRIBUTE)), (9, Message(&ENTRY))],
);
static ATTRIBUTE: Layout = layout::<AttributeProto>(
    "AttributeProto",
    &[
        (5, Message(&TENSOR)),
        (6, Message(&GRAPH)),
        (7, Numbers(4, 4)),
        (8, Numbers(8, 1)),
        (9, BYTES),
        (10, Message(&TENSOR)),
        (11, Message(&GRAPH)),
        (14, Message(&TYPE)),
        (15, Message(&TYPE)),
        (22, Message(&SPARSE)),
        (23, Message(&SPARSE)),
    ],
);
pub(crate) static TENSOR: Layout = layout::<TensorProto>(
    "TensorProto",
    &[
        (1, Numbers(8, 1)),
        (4, Numbers(4, 4)),
        (5, Numbers(4, 1)),
        (6, BYTES),
        (7, Numbers(8, 1)),
        (10, Numbers(8, 8)),
        (11, Numbers(8, 1)),
        (13, Message(&ENTRY)),
        (16, Message(&ENTRY)),
    ],
);
static SPARSE: Layout = layout::<SparseTensorProto>(
    "SparseTensorProto",
    &[(1, Message(&TENSOR)), (2, Message(&TENSOR)), (3, Numbers(8, 1))],
);
static VALUE_INFO: Layout =
    layout::<ValueInfoProto>("ValueInfoProto", &[(2, Message(&TYPE)), (4, Message(&ENTRY))]);
static SHAPE: Layout = layout::<TensorShapeProto>("TensorShapeProto", &[(1, Message(&DIMENSION))]);
static DIMENSION: Layout = layout::<tensor_shape_proto::Dimension>("Dimension", &[]);
static TYPE: Layout = layout::<TypeProto>(
    "TypeProto",
    &[
        (1, Message(&TENSOR_TYPE)),
        (4, Message(&SEQUENCE)),
        (5, Message(&MAP)),
        (7, Message(&OPAQUE)),
        (8, Message(&TENSOR_TYPE)),
        (9, Message(&OPTIONAL)),
    ],
);
static TENSOR_TYPE: Layout = layout::<type_proto::Tensor>("TypeProto.Tensor", &[(2, Message(&SHAPE))]);
static SEQUENCE: Layout = layout::<type_proto::Sequence>("TypeProto.Sequence", &[(1, Message(&TYPE))]);
static MAP: Layout = layout::<type_proto::Map>("TypeProto.Map", &[(2, Message(&TYPE))]);
static OPTIONAL: Layout = layout::<type_proto::Optional>("TypeProto.Optional", &[(1, Message(&TYPE))]);
static OPAQUE: Layout = layout::<type_proto::Opaque>("TypeProto.Opaque", &[]);
static FUNCTION: Layout = layout::<FunctionProto>(
    "FunctionProto",
    &[
        (4, STRING),
        (5, STRING),
        (6, STRING),
        (7, Message(&NODE)),
        (9, Message(&OPSET)),
        (11, Message(&ATTRIBUTE)),
        (12, Message(&VALUE_INFO)),
        (14, Message(&ENTRY)),
    ],
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a field of the schema is a message, a list of strings or bytes, or a list of numbers.
    fn kind(field: Field) -> &'static str {
        match field {
            Message(_) => "message",
            List(_) => "list",
            Numbers(..) => "numbers",
        }
    }

    /// The fields of a message in the schema that the layout has to know, by number.
    fn schema_fields(schema: &str, message: &str) -> Vec<(u32, &'static str)> {
        let short = message.rsplit('.').next().unwrap();
        let indent = if short.ends_with("Proto") || short == "TensorAnnotation" { "" } else { "  " };
        let (_, body) = schema.split_once(&format!("\n{indent}message {short} {{\n")).unwrap();
        let (body, _) = body.split_once(&format!("\n{indent}}}")).unwrap();
        let mut nested = false;
        let mut fields = Vec::new();
        for line in body.lines().map(|line| line.strip_prefix(indent).unwrap_or(line)) {
            nested |= line.starts_with("  message ") || line.starts_with("  enum ");
            if !nested {
                fields.extend(parse_field(line));
            }
            nested &= line != "  }";
        }
        fields.sort_unstable();
        fields
    }

    fn parse_field(line: &str) -> Option<(u32, &'static str)> {
        let (left, right) = line.trim().strip_suffix(';')?.split_once(" = ")?;
        let words: Vec<&str> = left.split(' ').collect();
        let (repeated, ty) = if words[0] == "repeated" { (true, words[1]) } else { (false, words[0]) };
        let number = right.parse().ok()?;
        match (repeated, ty) {
            (_, "AttributeType" | "DataLocation") => None,
            _ if ty.starts_with(char::is_uppercase) => Some((number, "message")),
            (true, "string" | "bytes") => Some((number, "list")),
            (true, _) => Some((number, "numbers")),
            _ => None,
        }
    }

    #[test]
    fn the_table_agrees_with_the_schema() {
        let schema = include_str!("../../proto/onnx.proto3");
        let mut names = Vec::new();
        let mut todo = vec![&MODEL];
        while let Some(layout) = todo.pop() {
            if names.contains(&layout.name) {
                continue;
            }
            names.push(layout.name);
            let known: Vec<_> = layout.fields.iter().map(|(number, field)| (*number, kind(*field))).collect();
            assert_eq!(known, schema_fields(schema, layout.name), "{}", layout.name);
            todo.extend(layout.fields.iter().filter_map(|(_, field)| match field {
                Message(inner) => Some(*inner),
                _ => None,
            }));
        }
        assert_eq!(names.len(), 19);
    }
}
