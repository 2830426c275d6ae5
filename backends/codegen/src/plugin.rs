//! Kernels of plug-in layers in source form: the text that a compiler takes, with declarations in front of the plug-in's own.

use kiln_backend::launch::PluginKernel;
use kiln_backend::{BackendError, Binding};
use kiln_ir::{DType, Graph};
use kiln_ops::plugin::kernel::ParamType;
use std::fmt::Write;

/// Name of the entry point of CUDA texts.
pub const ENTRY: &str = "kiln_plugin_layer";

/// Operands of a plug-in layer, in the order of bindings.
struct Operands {
    /// Element types of the inputs.
    inputs: Vec<DType>,
    /// Element types of the outputs.
    outputs: Vec<DType>,
}

fn operands(graph: &Graph) -> Operands {
    let node = graph.nodes().next().map(|(_, n)| n);
    let inputs = node.iter().flat_map(|n| n.inputs.iter().flatten());
    let outputs = node.iter().flat_map(|n| &n.outputs);
    Operands {
        inputs: inputs.map(|&v| graph.ty(v).dtype).collect(),
        outputs: outputs.map(|&v| graph.ty(v).dtype).collect(),
    }
}

/// The bindings of a kernel, argument words left out: inputs, outputs, workspace.
pub fn bindings(graph: &Graph, kernel: &PluginKernel) -> Vec<Binding> {
    let o = operands(graph);
    let inputs = (0..o.inputs.len() as u32).map(|i| Binding::Input(i, 0));
    let outputs = (0..o.outputs.len() as u32).map(|j| Binding::Output(j, 0));
    inputs.chain(outputs).chain(kernel.has_workspace().then_some(Binding::Scratch)).collect()
}

/// The type of an element in CUDA C++.
fn cuda_type(t: DType) -> &'static str {
    match t {
        DType::F32 => "float",
        DType::I32 => "int",
        DType::I64 => "long long",
        DType::F16 | DType::BF16 => "unsigned short",
        DType::I8 => "signed char",
        _ => "unsigned char",
    }
}

/// The text of a CUDA kernel. `prelude` defines `DEV`, `off` and `depend`; `head` are the members of every kernel's parameter; words
/// follow, then addresses.
pub fn cuda(graph: &Graph, kernel: &PluginKernel, threads: u32, prelude: &str, head: &str) -> String {
    let (o, form) = (operands(graph), kernel.form());
    let mut params = String::new();
    let mut reads = String::new();
    for (k, p) in form.params.iter().enumerate() {
        let (ty, value) = match p.ty {
            ParamType::U32 => ("unsigned int", format!("k.words[{k}]")),
            ParamType::I32 => ("int", format!("int(k.words[{k}])")),
            ParamType::F32 => ("float", format!("__uint_as_float(k.words[{k}])")),
        };
        let _ = write!(params, " {ty} {};", p.name);
        let _ = write!(reads, " p.{} = {value};", p.name);
    }
    let (mut args, mut types): (Vec<String>, Vec<String>) = Default::default();
    let mut fields = String::new();
    let inputs = o.inputs.iter().map(|t| format!("const {}*", cuda_type(*t)));
    let outputs = o.outputs.iter().map(|t| format!("{}*", cuda_type(*t)));
    for (b, ty) in inputs.chain(outputs).chain(kernel.has_workspace().then(|| "void*".to_owned())).enumerate()
    {
        let _ = write!(fields, " {ty} b{b};");
        types.push(ty);
        args.push(format!("k.b{b}"));
    }
    let params =
        if form.params.is_empty() { String::new() } else { format!("struct Params {{{params} }};\n") };
    let local = if form.params.is_empty() { String::new() } else { format!("Params p;{reads} ") };
    args.extend((!form.params.is_empty()).then(|| "p".to_owned()));
    // The plug-in's entry point becomes a function that the one in front of it calls.
    types.extend((!form.params.is_empty()).then(|| "Params".to_owned()));
    let (entry, types, args) = (&form.entry, types.join(", "), args.join(", "));
    format!(
        "{params}extern \"C\" __device__ __forceinline__ void {entry}({types});\nnamespace kiln_launch {{\n{prelude}struct K \
         {{\n{head}{fields}\n}};\n}}\n#undef DEV\n#undef let\n#undef select\nextern \"C\" __global__ void \
         __launch_bounds__({threads}) {ENTRY}(const __grid_constant__ kiln_launch::K k) {{ using namespace kiln_launch; if \
         (off(k, 1u)) {{ return; }} depend(); if (off(k, 0u)) {{ return; }} {local}{entry}({args}); }}\n#undef \
         __global__\n#undef __launch_bounds__\n#define __global__ __device__ __forceinline__\n#define __launch_bounds__(...)\n#line 1 \
         \"{}\"\n{}\n",
        form.tactic.replace(['"', '\\', '\n'], "_"),
        form.source
    )
}

/// The type of the elements of an array in WGSL.
fn wgsl_type(t: DType) -> &'static str {
    match t {
        DType::F32 => "f32",
        DType::I32 => "i32",
        DType::I64 => "i64",
        _ => "u32",
    }
}

/// The text of a WGSL kernel, with arguments at binding 0. Argument words begin with a head of these names.
pub fn wgsl(graph: &Graph, kernel: &PluginKernel, head: &[&str]) -> Result<String, BackendError> {
    let (o, form) = (operands(graph), kernel.form());
    let mut text = String::from("struct Params {\n");
    for name in head {
        let _ = writeln!(text, "    {name}: u32,");
    }
    for p in &form.params {
        let ty = match p.ty {
            ParamType::U32 => "u32",
            ParamType::I32 => "i32",
            ParamType::F32 => "f32",
        };
        let _ = writeln!(text, "    {}: {ty},", p.name);
    }
    text.push_str("}\n@group(0) @binding(0) var<storage, read> params: Params;\n");
    let inputs = o.inputs.iter().enumerate().map(|(i, t)| (format!("i{i}"), wgsl_type(*t)));
    let outputs = o.outputs.iter().enumerate().map(|(j, t)| (format!("o{j}"), wgsl_type(*t)));
    let workspace = kernel.has_workspace().then(|| ("workspace".to_owned(), "u32"));
    for (b, (name, ty)) in inputs.chain(outputs).chain(workspace).enumerate() {
        let _ = writeln!(text, "@group(0) @binding({}) var<storage, read_write> {name}: array<{ty}>;", b + 1);
    }
    text.push_str(&form.source);
    text.push('\n');
    Ok(text)
}
