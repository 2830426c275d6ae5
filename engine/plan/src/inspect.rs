//! The engine inspector: what runs, as a table for people and as JSON with TensorRT's keys for programs.

use crate::Verbosity;
use crate::io::io_tensors;
use crate::layouts::channels_last;
use kiln_backend::{Place, Program, Shapes, Step, Tactic};
use kiln_ir::graph::Uses;
use kiln_ir::ty::dims_text;
use kiln_ir::{Attr, Dim, Node, NodeId, Source, TensorFormat, TensorType, ValueId};
use kiln_ops::conv::CONV;
use kiln_ops::layout::to_first;
use kiln_ops::matmul::codes::MATMUL_CODES;
use kiln_ops::matmul::sparse::MATMUL_SPARSE;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// The layers of an engine, in the detail that its plan stores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerTable {
    /// Layers in execution order.
    #[serde(rename = "Layers")]
    pub layers: Vec<Layer>,
    /// Names of inputs and outputs.
    #[serde(rename = "I/O Tensors")]
    pub io: Vec<String>,
}

/// One layer: its name (or number), or all about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Layer {
    /// A name; a decimal number where the engine stores no names.
    Name(String),
    /// All about it.
    Detailed(Box<LayerInfo>),
}

/// All about a layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerInfo {
    /// Names of the fused layers, joined with " + ".
    #[serde(rename = "Name")]
    pub name: String,
    /// Operators, joined with " + ".
    #[serde(rename = "LayerType")]
    pub ops: String,
    /// Tensors that it reads, weights excepted.
    #[serde(rename = "Inputs")]
    pub inputs: Vec<TensorInfo>,
    /// Tensors that it writes for others.
    #[serde(rename = "Outputs")]
    pub outputs: Vec<TensorInfo>,
    /// Weights that it reads.
    #[serde(rename = "Weights")]
    pub weights: Vec<WeightInfo>,
    /// Attributes by operator: numbers, lists of numbers, truth values and text.
    #[serde(rename = "Parameters")]
    pub parameters: Vec<BTreeMap<String, Value>>,
    /// The tactic; "view" of a layer that launches no kernel and only renames memory.
    #[serde(rename = "TacticName")]
    pub tactic: String,
    /// Parameters of the tactic.
    #[serde(rename = "TacticValue")]
    pub tactic_params: BTreeMap<String, i64>,
    /// Scratch memory in bytes.
    #[serde(rename = "Workspace")]
    pub workspace: u64,
    /// The stream that it runs in: 0 is the main one, others run beside it.
    #[serde(rename = "StreamId", default)]
    pub stream: u32,
    /// Note of the network's author.
    #[serde(rename = "Metadata")]
    pub metadata: String,
    /// Kernels of a layer that has several, by the shapes at which they run. Without shapes of a run, `tactic` is the first.
    #[serde(rename = "TacticsByShape", default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelInfo>,
}

/// One of several kernels of a layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelInfo {
    /// Profiles and sizes of inputs at which it runs, in words.
    #[serde(rename = "Shapes")]
    pub shapes: Vec<String>,
    /// The tactic.
    #[serde(rename = "TacticName")]
    pub tactic: String,
    /// Parameters of the tactic.
    #[serde(rename = "TacticValue")]
    pub tactic_params: BTreeMap<String, i64>,
    /// Scratch memory in bytes.
    #[serde(rename = "Workspace")]
    pub workspace: u64,
}

/// A tensor at the border of a layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TensorInfo {
    /// Name of the tensor.
    #[serde(rename = "Name")]
    pub name: String,
    /// Dimensions; -1 where a run determines them.
    #[serde(rename = "Dimensions")]
    pub dims: Vec<i64>,
    /// Dimensions as text, with the names of symbols.
    #[serde(rename = "Shape")]
    pub shape: String,
    /// Format and element type in words.
    #[serde(rename = "Format/Datatype")]
    pub format: String,
    /// Element type.
    #[serde(rename = "Datatype", default)]
    pub dtype: String,
    /// Name of the format.
    #[serde(rename = "Format", default)]
    pub layout: String,
    /// Place in memory: "input 0", "arena 4096 (512 bytes)", "dynamic".
    #[serde(rename = "Memory")]
    pub memory: String,
}

/// A weight of a layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WeightInfo {
    /// The name to refit it by; empty if it has none.
    #[serde(rename = "Name")]
    pub name: String,
    /// Element type.
    #[serde(rename = "Type")]
    pub dtype: String,
    /// Number of elements.
    #[serde(rename = "Count")]
    pub count: usize,
    /// Names of the weights that it is derived of.
    #[serde(rename = "Sources", default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
}

impl KernelInfo {
    fn of((tactic, shapes): (&Tactic, Vec<String>)) -> KernelInfo {
        let (name, tactic_params, workspace) = (tactic.name.clone(), tactic.params.clone(), tactic.workspace);
        KernelInfo { shapes, tactic: name, tactic_params, workspace }
    }
}

impl LayerTable {
    /// The layers of a program.
    pub fn of(program: &Program, verbosity: Verbosity) -> LayerTable {
        LayerTable::with_shapes(program, verbosity, None)
    }

    /// The layers of a program, with the shapes of a run.
    pub fn with_shapes(program: &Program, verbosity: Verbosity, shapes: Option<&Shapes>) -> LayerTable {
        let mut layers = Vec::new();
        add_layers(&mut layers, program, verbosity, shapes, "");
        let io = match verbosity {
            Verbosity::None => Vec::new(),
            _ => io_tensors(program).into_iter().map(|t| t.name).collect(),
        };
        LayerTable { layers, io }
    }

    /// Writes the table as JSON, with TensorRT's keys.
    pub fn to_json(&self) -> String {
        // Strings, numbers and maps with text keys always have a JSON form.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Reads the table from JSON.
    pub fn from_json(bytes: &[u8]) -> Result<LayerTable, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// One line for a layer.
    pub fn line(&self, i: usize) -> Option<String> {
        self.layers.get(i).map(|l| match l {
            Layer::Name(name) => name.clone(),
            Layer::Detailed(l) => {
                let outs: Vec<String> =
                    l.outputs.iter().map(|t| format!("{} {}[{}]", t.name, t.brief(), t.shape)).collect();
                format!("{}: {} by {} → {}", l.name, l.ops, l.tactics(), outs.join(", "))
            }
        })
    }

    /// Writes a table for people.
    pub fn to_text(&self) -> String {
        let head = ["#", "layer", "operators", "tactic", "outputs", "memory"].map(str::to_owned);
        let mut rows = vec![head.to_vec()];
        rows.extend(self.layers.iter().enumerate().map(|(i, l)| l.row(i)));
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|c| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0))
            .collect();
        let mut out = String::new();
        for row in rows {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(s, &w)| format!("{s:w$}")).collect();
            out.push_str(cells.join("  ").trim_end());
            out.push('\n');
        }
        out
    }
}

impl LayerInfo {
    /// The tactic, and those for other shapes.
    fn tactics(&self) -> String {
        let other = |k: &KernelInfo| format!("{} at {}", k.tactic, k.shapes.join(", "));
        match self.kernels.is_empty() {
            true => self.tactic.clone(),
            false => self.kernels.iter().map(other).collect::<Vec<_>>().join("; "),
        }
    }
}

impl TensorInfo {
    /// Type and format in a few letters. Engines of earlier versions have the words only.
    fn brief(&self) -> String {
        match (self.dtype.as_str(), self.layout.as_str()) {
            ("", _) => self.format.clone(),
            (dtype, "linear") => dtype.to_owned(),
            (dtype, layout) => format!("{dtype} {layout} "),
        }
    }
}

impl Layer {
    /// Name or number of the layer.
    pub fn name(&self) -> &str {
        match self {
            Layer::Name(n) => n,
            Layer::Detailed(l) => &l.name,
        }
    }

    fn row(&self, i: usize) -> Vec<String> {
        match self {
            Layer::Name(n) => vec![i.to_string(), n.clone()],
            Layer::Detailed(l) => {
                let outs: Vec<String> =
                    l.outputs.iter().map(|t| format!("{}[{}]", t.brief(), t.shape)).collect();
                let memory: Vec<&str> = l.outputs.iter().map(|t| t.memory.as_str()).collect();
                vec![
                    i.to_string(),
                    l.name.clone(),
                    l.ops.clone(),
                    l.tactics(),
                    outs.join(", "),
                    memory.join(", "),
                ]
            }
        }
    }
}

/// The layers of a program, those of its bodies of control flow behind their step, `path` before their names.
fn add_layers(
    layers: &mut Vec<Layer>,
    program: &Program,
    verbosity: Verbosity,
    shapes: Option<&Shapes>,
    path: &str,
) {
    let detailed = verbosity == Verbosity::Detailed;
    let uses = if detailed { program.graph.uses() } else { Uses::default() };
    let last = if detailed { channels_last(&program.graph) } else { HashSet::new() };
    let describe = Describe { program, shapes, uses, last };
    for (number, step) in program.steps.iter().enumerate() {
        let name = format!("{path}{}", step.name);
        let stream = program.streams.get(number).copied().unwrap_or(0);
        layers.push(match verbosity {
            Verbosity::None => Layer::Name(layers.len().to_string()),
            Verbosity::Names => Layer::Name(name.clone()),
            Verbosity::Detailed => {
                Layer::Detailed(Box::new(LayerInfo { name: name.clone(), stream, ..describe.layer(step) }))
            }
        });
        for body in &step.bodies {
            add_layers(layers, body, verbosity, None, &format!("{name} / "));
        }
    }
}

struct Describe<'a> {
    program: &'a Program,
    shapes: Option<&'a Shapes>,
    uses: Uses,
    /// Values with channels last.
    last: HashSet<ValueId>,
}

impl Describe<'_> {
    fn layer(&self, step: &Step) -> LayerInfo {
        let g = &self.program.graph;
        let nodes: Vec<&Node> = step.nodes.iter().filter_map(|&n| g.get(n)).collect();
        let defined: HashSet<ValueId> = nodes.iter().flat_map(|n| n.outputs.iter().copied()).collect();
        let mut seen = HashSet::new();
        let read: Vec<ValueId> = nodes
            .iter()
            .flat_map(|n| n.inputs.iter().flatten().copied())
            .filter(|v| !defined.contains(v) && seen.insert(*v))
            .collect();
        let own: HashSet<NodeId> = step.nodes.iter().copied().collect();
        let inside = |v: &ValueId| {
            let readers = self.uses.of_value(*v);
            !readers.is_empty() && readers.iter().all(|(n, _)| own.contains(n)) && !g.outputs.contains(v)
        };
        let (weights, inputs): (Vec<_>, Vec<_>) = read.into_iter().partition(|&v| g.weight(v).is_some());
        let outputs = nodes.iter().flat_map(|n| n.outputs.iter().copied()).filter(|v| !inside(v));
        let notes: Vec<&str> =
            nodes.iter().map(|n| n.meta.metadata.as_str()).filter(|m| !m.is_empty()).collect();
        let tactic = step.tactic_in(self.shapes.map_or(u32::MAX, Shapes::case));
        LayerInfo {
            name: step.name.clone(),
            ops: nodes.iter().map(|n| n.op.name()).collect::<Vec<_>>().join(" + "),
            inputs: inputs.into_iter().map(|v| self.tensor(v)).collect(),
            outputs: outputs.map(|v| self.tensor(v)).collect(),
            weights: weights.into_iter().filter_map(|v| self.weight(v)).collect(),
            parameters: nodes.iter().map(|n| self.parameters(n, &nodes)).collect(),
            tactic: if self.program.is_view(step) { "view".into() } else { tactic.name.clone() },
            tactic_params: tactic.params.clone(),
            workspace: tactic.workspace,
            stream: 0,
            metadata: notes.join("; "),
            kernels: self.program.cases_of(step).into_iter().map(KernelInfo::of).collect(),
        }
    }

    fn tensor(&self, v: ValueId) -> TensorInfo {
        let def = self.program.graph.value(v);
        let ty: &TensorType = self.shapes.map_or(&def.fact.ty, |s| &s.fact(v).ty);
        let place = self.program.memory.places.get(v.0 as usize).copied().unwrap_or(Place::None);
        let memory = match place {
            Place::None => String::new(),
            Place::Input(i) => format!("input {i}"),
            Place::Weight => "weight".into(),
            Place::Arena { offset, size } => format!("arena {offset} ({size} bytes)"),
            Place::Dynamic => "dynamic".into(),
        };
        let (format, dims) = self.format(v, ty);
        TensorInfo {
            name: def.name.clone(),
            dims: dims.iter().map(|d| d.as_const().unwrap_or(-1)).collect(),
            shape: dims_text(&dims),
            format: format.describe(ty.dtype),
            dtype: ty.dtype.to_string(),
            layout: format.to_string(),
            memory,
        }
    }

    /// Format of a value, and its dimensions in the order of the linear one.
    fn format(&self, v: ValueId, ty: &TensorType) -> (TensorFormat, Vec<Dim>) {
        let g = &self.program.graph;
        let border = || g.inputs.contains(&v) || g.outputs.contains(&v);
        if let Some(packing) = g.packings.get(&g.value(v).name).filter(|_| border()) {
            let number = |n: u64| Dim::new(i64::try_from(n).unwrap_or(i64::MAX));
            let dims = packing.logical(&ty.dims, number);
            return (packing.format, dims.unwrap_or_else(|| ty.dims.clone()));
        }
        if !self.last.contains(&v) {
            return (TensorFormat::Linear, ty.dims.clone());
        }
        let format = if ty.rank() == 5 { TensorFormat::Dhwc } else { TensorFormat::Hwc };
        let dims = to_first(ty.rank()).into_iter().filter_map(|p| ty.dims.get(p).cloned());
        (format, dims.collect())
    }

    /// The operator's name as "ParameterType", and its attributes; of a convolution also what its weights and the layers
    /// behind it in the kernel show.
    fn parameters(&self, n: &Node, kernel: &[&Node]) -> BTreeMap<String, Value> {
        let mut p: BTreeMap<String, Value> =
            n.op.attrs().iter().map(|(k, a)| (trt_key(k), attr_value(a))).collect();
        p.insert("ParameterType".into(), n.op.name().into());
        if let Some(Attr::Ints(pads)) = n.op.attrs().get("pads") {
            let (pre, post) = pads.split_at(pads.len() / 2);
            p.remove("pads");
            p.insert("PrePadding".into(), pre.to_vec().into());
            p.insert("PostPadding".into(), post.to_vec().into());
        }
        if n.op.port(1).is_some_and(|p| p.name == "w") && n.op.attrs().get("dilations").is_some() {
            self.convolution(n, kernel, &mut p);
        }
        if n.op.is(MATMUL_SPARSE) {
            p.insert("AllowSparse".into(), true.into());
        }
        if n.op.is(MATMUL_CODES)
            && let Some(w) = n.inputs.get(1).copied().flatten()
            && let Source::Weight(codes) = &self.program.graph.value(w).source
        {
            let (t, count) = (codes.tensor.dtype().to_string(), codes.tensor.len());
            let packed = codes.tensor.bytes().len();
            p.insert("Weights".into(), serde_json::json!({"Type": t, "Count": count, "Bytes": packed}));
        }
        p
    }

    fn convolution(&self, n: &Node, kernel: &[&Node], p: &mut BTreeMap<String, Value>) {
        let g = &self.program.graph;
        let operand = |i: usize| n.inputs.get(i).copied().flatten();
        let dims = |v: ValueId| g.ty(v).dims.iter().map(|d| d.as_const().unwrap_or(-1)).collect::<Vec<i64>>();
        if let Some(w) = operand(1).map(dims).filter(|d| d.len() > 2) {
            let last = matches!(n.op.attrs().get("layout"), Some(Attr::Str(l)) if l == "channels_last");
            let spatial = if last { &w[1..w.len() - 1] } else { &w[2..] };
            p.insert("Kernel".into(), spatial.to_vec().into());
        }
        // Formats decide which axis of the result has the maps: the weights tell their number.
        if let Some(bias) = operand(2).map(dims) {
            p.insert("OutMaps".into(), bias.first().copied().unwrap_or(-1).into());
        } else if let Some(w) = operand(1).map(dims).filter(|_| n.op.is(CONV)) {
            p.insert("OutMaps".into(), w.first().copied().unwrap_or(-1).into());
        }
        for (key, i) in [("Weights", 1), ("Bias", 2)] {
            if let Some(w) = operand(i).and_then(|v| self.weight(v)) {
                p.insert(key.into(), serde_json::json!({"Type": w.dtype, "Count": w.count}));
            }
        }
        let after = kernel.iter().skip_while(|k| !std::ptr::eq(**k, n)).skip(1);
        let unary = |k: &&&Node| k.op.is_pointwise() && k.inputs.len() == 1;
        let activation = after.filter(unary).map(|k| k.op.name()).next();
        p.insert("HasBias".into(), operand(2).is_some().into());
        p.insert("HasReLU".into(), (activation == Some("relu")).into());
        p.insert("Activation".into(), activation.unwrap_or("none").into());
        p.insert("AllowSparse".into(), false.into());
    }

    fn weight(&self, v: ValueId) -> Option<WeightInfo> {
        let Source::Weight(w) = &self.program.graph.value(v).source else { return None };
        Some(WeightInfo {
            name: w.name.as_deref().unwrap_or_default().to_owned(),
            dtype: w.tensor.dtype().to_string(),
            count: w.tensor.len(),
            sources: w.recipe.iter().flat_map(|r| &r.sources).map(|s| s.to_string()).collect(),
        })
    }
}

/// TensorRT's key for an attribute that it has, else the attribute's name.
fn trt_key(name: &str) -> String {
    match name {
        "strides" => "Stride",
        "dilations" => "Dilation",
        "groups" => "Groups",
        "kernel" => "Kernel",
        "pad_mode" => "PaddingMode",
        other => other,
    }
    .to_owned()
}

fn attr_value(a: &Attr) -> Value {
    match a {
        Attr::Int(n) => (*n).into(),
        Attr::Float(x) => (*x).into(),
        Attr::Bool(b) => (*b).into(),
        Attr::Str(s) => s.as_str().into(),
        Attr::Ints(v) => v.clone().into(),
        Attr::Floats(v) => v.clone().into(),
        Attr::Strs(v) => v.clone().into(),
        Attr::Bytes(b) => format!("{} bytes", b.len()).into(),
        other => other.to_string().into(),
    }
}
