//! The provider of a session: what it claims, and how it compiles that.

use crate::abi::{ComputeInfo, Ep, FusionOptions, SupportInfo, VERSION};
use crate::claim::{claims, model_of};
use crate::compatibility::needs;
use crate::compiled::{Part, State, check_backend};
use crate::context_node;
use crate::device::{self, Device};
use crate::error::Fail;
use crate::model::Reader;
use crate::options::{NAME, Options};
use crate::ort::{Ort, guard, text};
use crate::run::Node;
use kiln::Model;
use ort_sys::{OrtGraph, OrtLogger, OrtLoggingLevel, OrtNode, OrtStatusPtr};
use prost::Message;
use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A provider. ONNX Runtime sees its first field.
#[repr(C)]
pub struct Provider {
    ep: Ep,
    ort: Ort,
    logger: *const OrtLogger,
    options: Options,
    /// The device whose memory holds values; `None` for host memory.
    device: Option<&'static Device>,
    /// Description of where the plans of compiled models run.
    needs: CString,
    /// Whether parts were compiled. ONNX Runtime 1.23 counts the names of fused nodes anew with each question, so that only the
    /// answers of one can be used.
    compiled: AtomicBool,
}

impl Provider {
    pub fn new(
        ort: Ort,
        logger: *const OrtLogger,
        options: Options,
        device: Option<&'static Device>,
    ) -> Provider {
        let ep = Ep {
            version: VERSION,
            name,
            capability,
            compile,
            release_compute_infos,
            preferred_layout: None,
            convert_layout: None,
            dynamic_options: None,
            run_start: None,
            run_end: None,
            create_allocator: None,
            create_stream: None,
            compatibility: Some(compatibility),
        };
        let needs = CString::new(needs(&options)).unwrap_or_default();
        Provider { ep, ort, logger, options, device, needs, compiled: AtomicBool::new(false) }
    }

    /// Hands it to ONNX Runtime.
    pub fn into_raw(self) -> *mut Ep {
        Box::into_raw(Box::new(self)).cast()
    }

    fn info(&self, line: &str) {
        self.ort.log(self.logger, OrtLoggingLevel::ORT_LOGGING_LEVEL_INFO, line);
    }
}

unsafe extern "C" fn name(ep: *const Ep) -> *const c_char {
    // SAFETY: the provider that `into_raw` handed over.
    let device = unsafe { (*ep.cast::<Provider>()).device };
    device.map_or(NAME, |_| device::NAME).as_ptr()
}

unsafe extern "C" fn compatibility(ep: *mut Ep, _: *const OrtGraph) -> *const c_char {
    // SAFETY: the provider that `into_raw` handed over; the text lives as long as it.
    unsafe { (*ep.cast::<Provider>()).needs.as_ptr() }
}

unsafe extern "C" fn capability(ep: *mut Ep, graph: *const OrtGraph, info: *mut SupportInfo) -> OrtStatusPtr {
    // SAFETY: the provider that `into_raw` handed over.
    let provider = unsafe { &*ep.cast::<Provider>() };
    guard(&provider.ort, || claim(provider, graph, info))
}

fn claim(provider: &Provider, graph: *const OrtGraph, info: *mut SupportInfo) -> Result<(), Fail> {
    let reader = Reader(&provider.ort);
    let graph = reader.graph(graph)?;
    // Bodies come first; they are claimed with the node that they belong to, or not at all.
    if graph.is_body || provider.compiled.load(Ordering::Acquire) {
        return Ok(());
    }
    let fuse = |nodes: &[*const OrtNode], drop_constants: bool| {
        let options = FusionOptions { version: VERSION, drop_constant_initializers: drop_constants };
        // SAFETY: the table's function, and nodes of the graph.
        let status = unsafe {
            (provider.ort.ep.add_nodes_to_fuse)(info, nodes.as_ptr(), nodes.len(), &raw const options)
        };
        provider.ort.check(status)
    };
    let mut graph = graph;
    for node in &mut graph.nodes {
        if !node.taken && context_node::is_ours(&node.proto) {
            node.taken = true;
            fuse(&[node.pointer], true)?;
        }
    }
    for node in graph.nodes.iter_mut().filter(|n| provider.options.excluded.contains(&n.proto.op_type)) {
        node.refusal = Some(format!("option op_types_to_exclude names {}", node.proto.op_type));
    }
    let check =
        |model: &kiln_onnx::proto::ModelProto| check_backend(&provider.options, &model.encode_to_vec());
    let found = claims(&reader, &graph, provider.options.min_subgraph, &check)?;
    for (node, why) in &found.refused {
        provider.info(&format!("Kiln leaves node {node} to others: {why}"));
    }
    for part in &found.parts {
        let nodes: Vec<*const OrtNode> = part.iter().map(|&i| graph.nodes[i].pointer).collect();
        fuse(&nodes, true)?;
    }
    let count: usize = found.parts.iter().map(Vec::len).sum();
    provider.info(&format!(
        "Kiln runs {count} of {} nodes in {} parts",
        graph.nodes.len(),
        found.parts.len()
    ));
    Ok(())
}

unsafe extern "C" fn compile(
    ep: *mut Ep,
    graphs: *mut *const OrtGraph,
    fused: *mut *const OrtNode,
    count: usize,
    infos: *mut *mut ComputeInfo,
    contexts: *mut *mut OrtNode,
) -> OrtStatusPtr {
    // SAFETY: the provider that `into_raw` handed over.
    let provider = unsafe { &*ep.cast::<Provider>() };
    guard(&provider.ort, || {
        provider.compiled.store(true, Ordering::Release);
        for i in 0..count {
            // SAFETY: arrays of so many entries.
            unsafe {
                let (node, context) = compile_one(provider, *graphs.add(i), *fused.add(i))?;
                infos.add(i).write(node.into_raw());
                if !context.is_null() {
                    contexts.add(i).write(context);
                }
            }
        }
        Ok(())
    })
}

fn compile_one(
    provider: &Provider,
    graph: *const OrtGraph,
    fused: *const OrtNode,
) -> Result<(Node, *mut OrtNode), Fail> {
    let reader = Reader(&provider.ort);
    let (inputs, outputs) = reader.ports(fused)?;
    let read = reader.graph(graph)?;
    let mut part = Part {
        model: None,
        options: provider.options.clone(),
        inputs,
        outputs,
        shape_inputs: Vec::new(),
        state: Mutex::default(),
    };
    let stored = read.nodes.iter().find(|n| context_node::is_ours(&n.proto));
    if let Some(node) = stored {
        let built = part.load(context_node::plan(&node.proto, &folder(&provider.ort, graph)?)?)?;
        // The node has names of its own; the plan has them in the same order.
        let io = built.engine.io_tensors();
        let named = |mode| io.iter().filter(move |t| t.mode == mode).map(|t| t.name.clone());
        let order: Vec<String> = named(kiln::IoMode::Input).collect();
        if order.iter().any(|n| !part.inputs.contains(n)) {
            return Err(Fail::new(
                "the plan in the model has other inputs than its node: compile the model again",
            ));
        }
        part.state = Mutex::new(State::of(built));
        return Ok((Node::new(provider.ort, part, provider.device), std::ptr::null_mut()));
    }
    let all: Vec<usize> = (0..read.nodes.len()).collect();
    let proto = model_of(&reader, &read, &all).map_err(|r| Fail::new(r.why()))?;
    let bytes = proto.encode_to_vec();
    let model = Model::from_bytes(bytes.clone(), None)?;
    part.shape_inputs =
        model.io_tensors().iter().filter(|t| t.is_shape_input).map(|t| t.name.clone()).collect();
    if provider.options.dump_subgraphs {
        dump(&provider.options, &reader.name(fused)?, &bytes)?;
    }
    part.model = Some(bytes);
    let request = provider.options.shapes(&part.inputs);
    let mut context = std::ptr::null_mut();
    if Part::is_static(&model) || !request.is_empty() || provider.options.context_enable {
        // An input without dimensions may have some in runs: see `with_ranks`.
        let ranks_known =
            model.io_tensors().iter().all(|t| t.mode != kiln::IoMode::Input || !t.dims.is_empty());
        let built = match part.build(&request, &[]) {
            Err(_) if !ranks_known && !provider.options.context_enable => {
                return Ok((Node::new(provider.ort, part, provider.device), context));
            }
            built => built?,
        };
        if provider.options.detailed_log {
            provider.info(&built.engine.inspector().to_text());
        }
        if provider.options.context_enable {
            let plan = built.engine.plan().write()?;
            // The stored node is found by the name of the fused one.
            let name = reader.name(fused)?;
            context = context_node::make(
                &provider.ort,
                &provider.options,
                &name,
                (&part.inputs, &part.outputs),
                &plan,
            )?;
        }
        if Part::is_static(&model) && ranks_known {
            part.model = None;
        }
        part.state = Mutex::new(State::of(built));
    }
    Ok((Node::new(provider.ort, part, provider.device), context))
}

/// Writes the model of a part into the folder of stored engines.
fn dump(options: &Options, name: &str, model: &[u8]) -> Result<(), Fail> {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    let folder = options.folder();
    let path = folder.join(format!("{}{plain}.onnx", options.engine_cache_prefix));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, model));
    written.map_err(|e| Fail::new(format!("cannot write {}: {e}", path.display())))
}

/// The folder of the model's file.
fn folder(ort: &Ort, graph: *const OrtGraph) -> Result<PathBuf, Fail> {
    let mut path = std::ptr::null();
    // SAFETY: the table's function for a graph that lives during the call.
    let path = unsafe {
        ort.check((ort.api.Graph_GetModelPath)(graph, &raw mut path))?;
        text(path)
    };
    Ok(Path::new(&path).parent().map_or_else(PathBuf::new, Path::to_owned))
}

unsafe extern "C" fn release_compute_infos(_: *mut Ep, infos: *mut *mut ComputeInfo, count: usize) {
    for i in 0..count {
        // SAFETY: nodes that `compile` made, which nobody uses any more.
        unsafe { Node::free(*infos.add(i)) };
    }
}

/// Frees what `into_raw` made.
///
/// # Safety
/// NULL, or such a pointer that nobody uses any more.
pub unsafe fn release(ep: *mut Ep) {
    if !ep.is_null() {
        // SAFETY: as the caller vouches.
        crate::error::quietly(|| drop(unsafe { Box::from_raw(ep.cast::<Provider>()) }));
    }
}
