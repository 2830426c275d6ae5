//! Graphs of ONNX Runtime as messages of ONNX.

use crate::error::Fail;
use crate::ort::{Ort, text};
use crate::values::View;
use kiln_onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TypeProto, ValueInfoProto, attribute_proto::AttributeType, tensor_shape_proto::Dimension,
    tensor_shape_proto::dimension::Value as DimValue, type_proto,
};
use ort_sys::{
    ONNXTensorElementDataType, ONNXType, OrtGraph, OrtNode, OrtOpAttr, OrtOpAttrType, OrtStatusPtr,
    OrtTensorTypeAndShapeInfo, OrtTypeInfo, OrtValueInfo,
};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_char;

/// Numbers of element types.
const INT64: i32 = 7;
const BOOL: i32 = 9;

/// Depth of nested bodies at most.
const DEEPEST: usize = 32;

/// A node: its message, and names that its bodies read from around them.
pub struct Node {
    pub pointer: *const OrtNode,
    pub proto: NodeProto,
    pub captured: Vec<String>,
    /// Whether another provider has it.
    pub taken: bool,
    /// Reason why it has no message here.
    pub refusal: Option<String>,
}

impl Node {
    /// Names that it reads.
    pub fn reads(&self) -> impl Iterator<Item = &String> {
        self.proto.input.iter().chain(&self.captured).filter(|n| !n.is_empty())
    }

    /// Names that it computes.
    pub fn writes(&self) -> impl Iterator<Item = &String> {
        self.proto.output.iter().filter(|n| !n.is_empty())
    }
}

/// A graph that was read.
pub struct Graph {
    pub ir_version: i64,
    pub opsets: Vec<OperatorSetIdProto>,
    pub nodes: Vec<Node>,
    /// Descriptions of values by name.
    pub values: HashMap<String, *const OrtValueInfo>,
    pub outputs: Vec<String>,
    /// Whether it is the body of a node.
    pub is_body: bool,
}

type Getter<T> = unsafe extern "system" fn(*const T, *mut usize) -> OrtStatusPtr;
type Filler<T, U> = unsafe extern "system" fn(*const T, *mut *const U, usize) -> OrtStatusPtr;

/// Reader of graphs.
pub struct Reader<'a>(pub &'a Ort);

impl Reader<'_> {
    fn list<T, U>(&self, of: *const T, count: Getter<T>, fill: Filler<T, U>) -> Result<Vec<*const U>, Fail> {
        let mut n = 0;
        // SAFETY: the table's functions for an object that lives during the call, and room for as many pointers.
        unsafe {
            self.0.check(count(of, &raw mut n))?;
            let mut all = vec![std::ptr::null(); n];
            self.0.check(fill(of, all.as_mut_ptr(), n))?;
            Ok(all)
        }
    }

    fn string<T>(
        &self,
        of: *const T,
        get: unsafe extern "system" fn(*const T, *mut *const c_char) -> OrtStatusPtr,
    ) -> Result<String, Fail> {
        let mut found = std::ptr::null();
        // SAFETY: the table's function for an object that lives during the call; the text lives as long.
        unsafe {
            self.0.check(get(of, &raw mut found))?;
            Ok(text(found))
        }
    }

    /// Names of values; a missing one is empty.
    fn names(
        &self,
        all: &[*const OrtValueInfo],
        values: &mut HashMap<String, *const OrtValueInfo>,
    ) -> Result<Vec<String>, Fail> {
        let mut names = Vec::with_capacity(all.len());
        for &info in all {
            let name =
                if info.is_null() { String::new() } else { self.string(info, self.0.api.GetValueInfoName)? };
            if !name.is_empty() {
                values.insert(name.clone(), info);
            }
            names.push(name);
        }
        Ok(names)
    }

    /// Reads a graph with its nodes and the bodies in them.
    pub fn graph(&self, graph: *const OrtGraph) -> Result<Graph, Fail> {
        let api = self.0.api;
        let (mut ir_version, mut count, mut parent) = (0, 0, std::ptr::null());
        let inputs = self.list(graph, api.Graph_GetNumInputs, api.Graph_GetInputs)?;
        // SAFETY: the table's functions for a graph that lives during the call.
        let (domains, versions) = unsafe {
            self.0.check((api.Graph_GetOnnxIRVersion)(graph, &raw mut ir_version))?;
            self.0.check((api.Graph_GetParentNode)(graph, &raw mut parent))?;
            self.0.check((api.Graph_GetNumOperatorSets)(graph, &raw mut count))?;
            let (mut domains, mut versions) = (vec![std::ptr::null(); count], vec![0; count]);
            self.0.check((api.Graph_GetOperatorSets)(
                graph,
                domains.as_mut_ptr(),
                versions.as_mut_ptr(),
                count,
            ))?;
            (domains.into_iter().map(|d| text(d)).collect::<Vec<_>>(), versions)
        };
        let opset = |(domain, version)| OperatorSetIdProto { domain, version };
        let mut values = HashMap::new();
        let outputs = self.list(graph, api.Graph_GetNumOutputs, api.Graph_GetOutputs)?;
        let outputs = self.names(&outputs, &mut values)?;
        let pointers = self.list(graph, api.Graph_GetNumNodes, api.Graph_GetNodes)?;
        let nodes: Result<Vec<Node>, Fail> =
            pointers.into_iter().map(|n| self.node(n, &mut values, 0)).collect();
        let is_body = !parent.is_null() || self.looks_like_body(&inputs, &outputs, &values)?;
        Ok(Graph {
            ir_version,
            opsets: domains.into_iter().zip(versions).map(opset).collect(),
            nodes: nodes?,
            values,
            outputs,
            is_body,
        })
    }

    /// Whether a graph is the body of a node. ONNX Runtime 1.23 does not say so of graphs that it asks about: a body reads values
    /// from around it, or has no inputs, or has those of a loop (count, condition) and its first output (condition).
    fn looks_like_body(
        &self,
        inputs: &[*const OrtValueInfo],
        outputs: &[String],
        values: &HashMap<String, *const OrtValueInfo>,
    ) -> Result<bool, Fail> {
        let mut outer = inputs.is_empty();
        for &info in values.values() {
            let mut from_outside = false;
            // SAFETY: the table's function for a description that lives during the call.
            unsafe { self.0.check((self.0.api.ValueInfo_IsFromOuterScope)(info, &raw mut from_outside)) }?;
            outer |= from_outside;
        }
        let elem = |info: Option<*const OrtValueInfo>| -> Result<Option<i32>, Fail> {
            let Some(info) = info else { return Ok(None) };
            Ok(element_type(&self.described("", info)?))
        };
        let first = outputs.first().and_then(|n| values.get(n).copied());
        let (count, condition) = (elem(inputs.first().copied())?, elem(inputs.get(1).copied())?);
        let is_loop = (count, condition, elem(first)?) == (Some(INT64), Some(BOOL), Some(BOOL));
        Ok(outer || is_loop)
    }

    /// The name of a node.
    pub fn name(&self, node: *const OrtNode) -> Result<String, Fail> {
        self.string(node, self.0.api.Node_GetName)
    }

    /// Names of the inputs and outputs of a node, in order.
    pub fn ports(&self, node: *const OrtNode) -> Result<(Vec<String>, Vec<String>), Fail> {
        let api = self.0.api;
        let mut values = HashMap::new();
        let ins = self.list(node, api.Node_GetNumInputs, api.Node_GetInputs)?;
        let outs = self.list(node, api.Node_GetNumOutputs, api.Node_GetOutputs)?;
        Ok((self.names(&ins, &mut values)?, self.names(&outs, &mut values)?))
    }

    fn node(
        &self,
        node: *const OrtNode,
        values: &mut HashMap<String, *const OrtValueInfo>,
        depth: usize,
    ) -> Result<Node, Fail> {
        let api = self.0.api;
        let ins = self.list(node, api.Node_GetNumInputs, api.Node_GetInputs)?;
        let outs = self.list(node, api.Node_GetNumOutputs, api.Node_GetOutputs)?;
        let captured = self.list(node, api.Node_GetNumImplicitInputs, api.Node_GetImplicitInputs)?;
        let mut id = 0;
        // SAFETY: the table's function for a node that lives during the call.
        unsafe { self.0.check((api.Node_GetId)(node, &raw mut id)) }?;
        let (mut input, mut output) = (self.names(&ins, values)?, self.names(&outs, values)?);
        for list in [&mut input, &mut output] {
            while list.last().is_some_and(String::is_empty) {
                list.pop();
            }
        }
        let captured = self.names(&captured, values)?;
        let name = self.string(node, api.Node_GetName)?;
        let taken = !self.string(node, api.Node_GetEpName)?.is_empty();
        let mut proto = NodeProto {
            input,
            output,
            // Names of nodes need not be unique, and refusals are found by them.
            name: format!("{name}#{id}"),
            op_type: self.string(node, api.Node_GetOperatorType)?,
            domain: self.string(node, api.Node_GetDomain)?,
            ..NodeProto::default()
        };
        let refusal = match self.attributes(node, depth) {
            Ok(attributes) => {
                proto.attribute = attributes;
                None
            }
            Err(e) => Some(e.text),
        };
        Ok(Node { pointer: node, proto, captured, taken, refusal })
    }

    fn attributes(&self, node: *const OrtNode, depth: usize) -> Result<Vec<AttributeProto>, Fail> {
        let api = self.0.api;
        let bodies = self.bodies(node, depth)?;
        let pointers = self.list(node, api.Node_GetNumAttributes, api.Node_GetAttributes)?;
        let mut all = Vec::with_capacity(pointers.len());
        for attribute in pointers {
            let name = self.string(attribute, api.OpAttr_GetName)?;
            if !bodies.contains_key(&name) {
                all.push(self.attribute(attribute, name)?);
            }
        }
        for (name, body) in bodies {
            let r#type = AttributeType::Graph as i32;
            all.push(AttributeProto { name, r#type, g: Some(Box::new(body)), ..AttributeProto::default() });
        }
        Ok(all)
    }

    fn attribute(&self, attribute: *const OrtOpAttr, name: String) -> Result<AttributeProto, Fail> {
        let mut kind = OrtOpAttrType::ORT_OP_ATTR_UNDEFINED;
        // SAFETY: the table's function for an attribute that lives during the call.
        unsafe { self.0.check((self.0.api.OpAttr_GetType)(attribute, &raw mut kind)) }?;
        let mut a = AttributeProto { name, ..AttributeProto::default() };
        match kind {
            OrtOpAttrType::ORT_OP_ATTR_INT | OrtOpAttrType::ORT_OP_ATTR_INTS => {
                let bytes = self.bytes(attribute, kind)?;
                let ints: Vec<i64> =
                    bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect();
                if kind == OrtOpAttrType::ORT_OP_ATTR_INT {
                    (a.i, a.r#type) = (ints.first().copied().unwrap_or_default(), AttributeType::Int as i32);
                } else {
                    (a.ints, a.r#type) = (ints, AttributeType::Ints as i32);
                }
            }
            OrtOpAttrType::ORT_OP_ATTR_FLOAT | OrtOpAttrType::ORT_OP_ATTR_FLOATS => {
                let bytes = self.bytes(attribute, kind)?;
                let floats: Vec<f32> =
                    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
                if kind == OrtOpAttrType::ORT_OP_ATTR_FLOAT {
                    (a.f, a.r#type) =
                        (floats.first().copied().unwrap_or_default(), AttributeType::Float as i32);
                } else {
                    (a.floats, a.r#type) = (floats, AttributeType::Floats as i32);
                }
            }
            OrtOpAttrType::ORT_OP_ATTR_STRING => {
                let mut bytes = self.bytes(attribute, kind)?;
                // Texts are copied with the NUL at their end.
                if bytes.last() == Some(&0) {
                    bytes.pop();
                }
                (a.s, a.r#type) = (bytes.into(), AttributeType::String as i32);
            }
            OrtOpAttrType::ORT_OP_ATTR_STRINGS => {
                let bytes = self.bytes(attribute, kind)?;
                let texts = bytes.split(|b| *b == 0).filter(|t| !t.is_empty());
                a.strings = texts.map(|t| t.to_vec().into()).collect();
                a.r#type = AttributeType::Strings as i32;
            }
            OrtOpAttrType::ORT_OP_ATTR_TENSOR => {
                let mut value = std::ptr::null_mut();
                // SAFETY: the table's function for an attribute that lives during the call; the tensor is freed below.
                unsafe {
                    self.0.check((self.0.api.OpAttr_GetTensorAttributeAsOrtValue)(attribute, &raw mut value))
                }?;
                // SAFETY: the tensor of just now.
                let tensor = unsafe { self.tensor(value, String::new()) };
                // SAFETY: as above.
                unsafe { (self.0.api.ReleaseValue)(value) };
                (a.t, a.r#type) = (Some(Box::new(tensor?)), AttributeType::Tensor as i32);
            }
            _ => return Err(Fail::new(format!("attribute \"{}\" has a type that cannot be read", a.name))),
        }
        Ok(a)
    }

    /// The bytes of an attribute.
    fn bytes(&self, attribute: *const OrtOpAttr, kind: OrtOpAttrType) -> Result<Vec<u8>, Fail> {
        let mut size = 0;
        // SAFETY: the table's function: without room it fails, and says how many bytes it wants.
        unsafe {
            let status = (self.0.api.ReadOpAttr)(attribute, kind, std::ptr::null_mut(), 0, &raw mut size);
            let asked = self.0.check(status);
            if size == 0 {
                return asked.map(|()| Vec::new()).or(Ok(Vec::new()));
            }
            let mut bytes = vec![0u8; size];
            self.0.check((self.0.api.ReadOpAttr)(
                attribute,
                kind,
                bytes.as_mut_ptr().cast(),
                size,
                &raw mut size,
            ))?;
            bytes.truncate(size);
            Ok(bytes)
        }
    }

    /// The bodies of a node by attribute.
    fn bodies(&self, node: *const OrtNode, depth: usize) -> Result<BTreeMap<String, GraphProto>, Fail> {
        let api = self.0.api;
        let mut count = 0;
        // SAFETY: the table's functions for a node that lives during the call.
        let (graphs, names) = unsafe {
            self.0.check((api.Node_GetNumSubgraphs)(node, &raw mut count))?;
            let (mut graphs, mut names) = (vec![std::ptr::null(); count], vec![std::ptr::null(); count]);
            if count > 0 {
                self.0.check((api.Node_GetSubgraphs)(
                    node,
                    graphs.as_mut_ptr(),
                    count,
                    names.as_mut_ptr(),
                ))?;
            }
            (graphs, names.into_iter().map(|n| text(n)).collect::<Vec<String>>())
        };
        if count > 0 && depth >= DEEPEST {
            return Err(Fail::new(format!("bodies nest deeper than {DEEPEST}")));
        }
        names.into_iter().zip(graphs).map(|(n, g)| Ok((n, self.body(g, depth + 1)?))).collect()
    }

    fn body(&self, graph: *const OrtGraph, depth: usize) -> Result<GraphProto, Fail> {
        let api = self.0.api;
        let mut values = HashMap::new();
        let ins = self.list(graph, api.Graph_GetNumInputs, api.Graph_GetInputs)?;
        let outs = self.list(graph, api.Graph_GetNumOutputs, api.Graph_GetOutputs)?;
        let constants = self.list(graph, api.Graph_GetNumInitializers, api.Graph_GetInitializers)?;
        let (ins, outs) = (self.names(&ins, &mut values)?, self.names(&outs, &mut values)?);
        let constants = self.names(&constants, &mut values)?;
        let mut node = Vec::new();
        for n in self.list(graph, api.Graph_GetNumNodes, api.Graph_GetNodes)? {
            let read = self.node(n, &mut values, depth)?;
            match read.refusal {
                Some(why) => return Err(Fail::new(why)),
                None => node.push(read.proto),
            }
        }
        let name = self.string(graph, api.Graph_GetName)?;
        let initializer: Result<_, Fail> =
            constants.iter().filter_map(|n| self.constant(n, values[n]).transpose()).collect();
        let typed = |names: &[String]| -> Result<Vec<ValueInfoProto>, Fail> {
            names.iter().map(|n| self.described(n, values[n])).collect()
        };
        let names: Vec<String> = ins.into_iter().filter(|n| !constants.contains(n)).collect();
        Ok(GraphProto {
            name,
            node,
            input: typed(&names)?,
            output: typed(&outs)?,
            initializer: initializer?,
            ..GraphProto::default()
        })
    }

    /// The tensor of an initializer; `None` where a value has none.
    pub fn constant(&self, name: &str, info: *const OrtValueInfo) -> Result<Option<TensorProto>, Fail> {
        let (mut constant, mut value) = (false, std::ptr::null());
        // SAFETY: the table's functions for a description that lives during the call.
        unsafe {
            self.0.check((self.0.api.ValueInfo_IsConstantInitializer)(info, &raw mut constant))?;
            if !constant {
                return Ok(None);
            }
            self.0.check((self.0.api.ValueInfo_GetInitializerValue)(info, &raw mut value))?;
            if value.is_null() {
                return Ok(None);
            }
            self.tensor(value, name.to_owned()).map(Some)
        }
    }

    unsafe fn tensor(&self, value: *const ort_sys::OrtValue, name: String) -> Result<TensorProto, Fail> {
        // SAFETY: the caller's value lives; its bytes are copied.
        let (view, bytes) = unsafe {
            let view = View::of(self.0, value)?;
            let bytes = view.slice().to_vec();
            (view, bytes)
        };
        Ok(TensorProto {
            name,
            dims: view.shape,
            data_type: view.elem,
            raw_data: bytes.into(),
            ..TensorProto::default()
        })
    }

    /// Name and type of a value; without a type where it is not a tensor.
    pub fn described(&self, name: &str, info: *const OrtValueInfo) -> Result<ValueInfoProto, Fail> {
        let r#type = self.tensor_type(info)?;
        Ok(ValueInfoProto { name: name.to_owned(), r#type, ..ValueInfoProto::default() })
    }

    /// The type of a tensor; `None` for sequences, optional values and the like.
    pub fn tensor_type(&self, info: *const OrtValueInfo) -> Result<Option<TypeProto>, Fail> {
        let api = self.0.api;
        let mut ty: *const OrtTypeInfo = std::ptr::null();
        let mut kind = ONNXType::ONNX_TYPE_UNKNOWN;
        let mut tensor: *const OrtTensorTypeAndShapeInfo = std::ptr::null();
        let mut elem = ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
        // SAFETY: the table's functions for a description that lives during the call.
        let (dims, symbols) = unsafe {
            self.0.check((api.GetValueInfoTypeInfo)(info, &raw mut ty))?;
            if ty.is_null() {
                return Ok(None);
            }
            self.0.check((api.GetOnnxTypeFromTypeInfo)(ty, &raw mut kind))?;
            if kind != ONNXType::ONNX_TYPE_TENSOR {
                return Ok(None);
            }
            self.0.check((api.CastTypeInfoToTensorInfo)(ty, &raw mut tensor))?;
            if tensor.is_null() {
                return Ok(None);
            }
            self.0.check((api.GetTensorElementType)(tensor, &raw mut elem))?;
            let mut count = 0;
            self.0.check((api.GetDimensionsCount)(tensor, &raw mut count))?;
            let (mut dims, mut symbols) = (vec![0; count], vec![std::ptr::null(); count]);
            self.0.check((api.GetDimensions)(tensor, dims.as_mut_ptr(), count))?;
            self.0.check((api.GetSymbolicDimensions)(tensor, symbols.as_mut_ptr(), count))?;
            (dims, symbols.into_iter().map(|s| text(s)).collect::<Vec<_>>())
        };
        let dim = dims.into_iter().zip(symbols).map(|(n, symbol)| {
            let value = match (n >= 0, symbol.is_empty()) {
                (true, _) => Some(DimValue::DimValue(n)),
                (false, false) => Some(DimValue::DimParam(symbol)),
                (false, true) => None,
            };
            Dimension { value, ..Dimension::default() }
        });
        let shape = Some(TensorShapeProto { dim: dim.collect() });
        let value = type_proto::Value::TensorType(type_proto::Tensor { elem_type: elem as i32, shape });
        Ok(Some(TypeProto { value: Some(value), ..TypeProto::default() }))
    }
}

/// The element type and the number of dimensions of a description.
pub fn element_type(v: &ValueInfoProto) -> Option<i32> {
    match v.r#type.as_ref()?.value.as_ref()? {
        type_proto::Value::TensorType(t) => Some(t.elem_type),
        _ => None,
    }
}

/// A model of these nodes.
pub fn model(graph: &Graph, nodes: Vec<NodeProto>, parts: Parts) -> ModelProto {
    let Parts { input, output, initializer } = parts;
    ModelProto {
        ir_version: graph.ir_version.max(8),
        producer_name: "ONNX Runtime".into(),
        opset_import: graph.opsets.clone(),
        graph: Some(GraphProto {
            name: "fused".into(),
            node: nodes,
            input,
            output,
            initializer,
            ..GraphProto::default()
        }),
        ..ModelProto::default()
    }
}

/// Inputs, outputs and constants of a model.
#[derive(Default)]
pub struct Parts {
    pub input: Vec<ValueInfoProto>,
    pub output: Vec<ValueInfoProto>,
    pub initializer: Vec<TensorProto>,
}
