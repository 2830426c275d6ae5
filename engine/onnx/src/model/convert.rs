//! Conversion of decoded messages to checked graphs, functions inlined on the way.

use std::collections::BTreeMap;

use kiln_network::PluginSpec;
use prost::Message;

use super::functions::{self, Functions};
use super::names::Names;
use super::opset::canonical_domain;
use super::scope::Text;
use super::{Graph, Node, Opsets, SparseTensor, ValueInfo, ValueType, verify};
use crate::error::{NodeFault, OnnxError};
use crate::load::ModelFile;
use crate::proto::{FunctionProto, GraphProto, NodeProto, TensorProto, ValueInfoProto};
use crate::tensor::TensorData;

/// Graphs and function calls may nest so deep, counted together.
const MAX_NESTING: usize = 64;

/// Inlining functions may take so many bytes for each of the file, and so many beside.
const INLINE_RATIO: u64 = 64;
const INLINE_BASE: u64 = 64 << 20;

/// The conversion of one model.
pub(super) struct Converter<'a> {
    pub file: &'a ModelFile,
    pub functions: Functions<'a>,
    pub names: Names,
    /// The functions being inlined, outermost first.
    pub calls: Vec<&'a FunctionProto>,
    depth: usize,
    inlined: u64,
}

/// Converts the main graph and all in it.
pub(super) fn main_graph(file: &ModelFile, proto: &GraphProto, opsets: &Opsets) -> Result<Graph, OnnxError> {
    let functions = functions::functions(&file.proto().functions)?;
    let mut names = Names::default();
    if !functions.is_empty() {
        names.take_all(proto);
    }
    let mut converter = Converter { file, functions, names, calls: Vec::new(), depth: 0, inlined: 0 };
    let graph = converter.graph(proto, &mut Text { opsets, frame: None })?;
    verify::check_main(&graph)?;
    Ok(graph)
}

impl Converter<'_> {
    /// Converts a graph and checks it as far as that needs nothing outside it.
    pub fn graph(&mut self, proto: &GraphProto, text: &mut Text<'_>) -> Result<Graph, OnnxError> {
        self.nested(|converter| {
            text.open(proto, &mut converter.names);
            let mut graph = Graph { name: proto.name.clone(), ..Graph::default() };
            converter.declarations(proto, text, &mut graph)?;
            for (index, node) in proto.node.iter().enumerate() {
                converter.node(node, index, text, &mut graph.nodes)?;
            }
            text.close();
            verify::close(&mut graph)?;
            Ok(graph)
        })
    }

    /// Runs a function one level deeper.
    pub fn nested<T>(
        &mut self,
        inside: impl FnOnce(&mut Self) -> Result<T, OnnxError>,
    ) -> Result<T, OnnxError> {
        if self.depth == MAX_NESTING {
            return Err(OnnxError::NestingTooDeep { what: "graphs and function calls", limit: MAX_NESTING });
        }
        self.depth += 1;
        let result = inside(self);
        self.depth -= 1;
        result
    }

    /// Counts memory that the inlining of functions takes; text outside functions is bounded by the file itself.
    pub fn charge(&mut self, text: &Text<'_>, bytes: u64) -> Result<(), OnnxError> {
        let Some(frame) = &text.frame else { return Ok(()) };
        let limit = INLINE_BASE + INLINE_RATIO * self.file.size();
        self.inlined = self.inlined.saturating_add(bytes).saturating_add(frame.prefix.len() as u64);
        if self.inlined > limit {
            return Err(OnnxError::TooLarge { what: "inlining the functions", wanted: self.inlined, limit });
        }
        Ok(())
    }

    /// Extracts a tensor.
    pub fn tensor(
        &mut self,
        proto: &TensorProto,
        label: &str,
        text: &Text<'_>,
    ) -> Result<TensorData, OnnxError> {
        let tensor = TensorData::read(proto, label, self.file.external())?;
        let copied = if proto.raw_data.is_empty() { tensor.bytes.len() } else { 0 };
        self.charge(text, (size_of::<TensorData>() + copied + tensor.dims.len() * 8) as u64)?;
        Ok(tensor)
    }

    fn declarations(
        &mut self,
        proto: &GraphProto,
        text: &Text<'_>,
        graph: &mut Graph,
    ) -> Result<(), OnnxError> {
        graph.inputs = self.infos(&proto.input, "input", text, graph)?;
        graph.outputs = self.infos(&proto.output, "output", text, graph)?;
        self.initializers(proto, text, graph)?;
        self.sparse_initializers(proto, text, graph)?;
        if text.frame.is_none() {
            for info in &proto.value_info {
                let ty = ValueType::read(info.r#type.as_ref(), &info.name)?;
                graph.values.entry(info.name.clone()).or_insert(ty);
            }
        }
        Ok(())
    }

    fn infos(
        &mut self,
        infos: &[ValueInfoProto],
        what: &'static str,
        text: &Text<'_>,
        graph: &Graph,
    ) -> Result<Vec<ValueInfo>, OnnxError> {
        let mut read = Vec::with_capacity(infos.len());
        for (index, info) in infos.iter().enumerate() {
            named(&info.name, what, index, graph)?;
            self.charge(text, 256 + 16 * info.encoded_len() as u64)?;
            read.push(ValueInfo::read(info, text.defined(&info.name))?);
        }
        Ok(read)
    }

    fn initializers(
        &mut self,
        proto: &GraphProto,
        text: &Text<'_>,
        graph: &mut Graph,
    ) -> Result<(), OnnxError> {
        for (index, tensor) in proto.initializer.iter().enumerate() {
            named(&tensor.name, "initializer", index, graph)?;
            let mut data = self.tensor(tensor, &tensor.name, text)?;
            data.name = text.defined(&tensor.name);
            if let Some(first) = graph.initializers.insert(data.name.clone(), data) {
                return Err(twice(graph, first.name));
            }
        }
        Ok(())
    }

    fn sparse_initializers(
        &mut self,
        proto: &GraphProto,
        text: &Text<'_>,
        graph: &mut Graph,
    ) -> Result<(), OnnxError> {
        for (index, tensor) in proto.sparse_initializer.iter().enumerate() {
            let name = tensor.values.as_ref().map_or("", |values| values.name.as_str());
            named(name, "sparse initializer", index, graph)?;
            let mut data = SparseTensor::read(tensor, name, self.file.external())?;
            self.charge(text, 4096 + (data.values.bytes.len() + data.indices.bytes.len()) as u64)?;
            data.values.name = text.defined(name);
            let name = data.values.name.clone();
            let known = graph.initializers.contains_key(&name);
            if graph.sparse_initializers.insert(name.clone(), data).is_some() || known {
                return Err(twice(graph, name));
            }
        }
        Ok(())
    }

    /// Converts a node, or the nodes of the function that it calls.
    pub fn node(
        &mut self,
        proto: &NodeProto,
        index: usize,
        text: &mut Text<'_>,
        nodes: &mut Vec<Node>,
    ) -> Result<(), OnnxError> {
        let mut node = self.signature(proto, index, text)?;
        // A plug-in's layer goes before a function of its name, which is what runs where the plug-in is missing.
        let plugin = || PluginSpec::new(&node.domain, &node.op).find().is_ok();
        if let Some(function) = self.functions.find(proto).filter(|_| !plugin()) {
            return self.call(node, proto, function, text, nodes);
        }
        node.opset = text.opsets.version(&node.domain).ok_or_else(|| {
            let domain = if node.domain.is_empty() { "ai.onnx" } else { &node.domain };
            node.error(NodeFault::NoOpset { domain: domain.to_owned(), by: text.owner() })
        })?;
        node.attributes = self.attributes(proto, &node, text)?;
        self.charge(text, node.weight())?;
        nodes.push(node);
        Ok(())
    }

    /// A node without its operator set's version and attributes.
    fn signature(&mut self, proto: &NodeProto, index: usize, text: &Text<'_>) -> Result<Node, OnnxError> {
        let mut node = Node {
            name: proto.name.clone(),
            op: proto.op_type.clone(),
            domain: canonical_domain(&proto.domain).to_owned(),
            opset: 0,
            inputs: Vec::with_capacity(proto.input.len()),
            outputs: proto.output.iter().map(|output| text.defined(output)).collect(),
            attributes: BTreeMap::new(),
        };
        if node.op.is_empty() {
            node.name = format!("{} (number {index})", node.name);
            return Err(node.error(NodeFault::NoOperator));
        }
        if let Some(frame) = &text.frame {
            let own = if node.name.is_empty() { &node.op } else { &node.name };
            node.name = self.names.fresh(format!("{}{own}", frame.prefix));
        }
        for input in &proto.input {
            let resolved = text.resolve(input).ok_or_else(|| {
                let function = text.frame.as_ref().map_or_else(String::new, |frame| frame.function.clone());
                node.error(NodeFault::FunctionInput { function, input: input.clone() })
            })?;
            node.inputs.push(resolved);
        }
        Ok(node)
    }
}

fn named(name: &str, what: &'static str, index: usize, graph: &Graph) -> Result<(), OnnxError> {
    if name.is_empty() {
        return Err(OnnxError::Unnamed { graph: graph.name.clone(), what, index });
    }
    Ok(())
}

fn twice(graph: &Graph, name: String) -> OnnxError {
    let by = "an initializer".to_owned();
    OnnxError::DuplicateName { graph: graph.name.clone(), name, first: by.clone(), second: by }
}
