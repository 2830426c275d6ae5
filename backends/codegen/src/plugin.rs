//! Kernels of plug-in layers in source form: the text that a compiler takes, with declarations in front of the plug-in's own.

use kiln_backend::launch::{Block, COPY_THREADS, PluginKernel};
use kiln_backend::{BackendError, Binding, EntryPoint};
use kiln_ir::{DType, Graph};
use kiln_ops::plugin::kernel::ParamType;
use std::fmt::Write;

/// Name of the entry point of CUDA texts.
const ENTRY: &str = "kiln_plugin_layer";

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

/// Name of the entry point of CUDA texts that finds sizes.
const COUNT: &str = "kiln_plugin_count";
/// Beginning of the names of entry points that copy the contents of an alias.
const COPY: &str = "kiln_plugin_copy";

/// The entry points of a CUDA text, in the order of the kernel's launches, with their threads.
pub fn cuda_entries(kernel: &PluginKernel, block: &Block) -> Vec<EntryPoint> {
    let main = [(ENTRY.to_owned(), block.threads)];
    let count = block.counting.map(|threads| (COUNT.to_owned(), threads));
    entries(main.into_iter().chain(count), kernel, COPY_THREADS)
}

/// The entry points of a WGSL text, in the order of the kernel's launches.
pub fn wgsl_entries(kernel: &PluginKernel) -> Vec<EntryPoint> {
    let form = kernel.form();
    let count = form.count.as_ref().filter(|_| kernel.counts()).map(|c| (c.entry.clone(), 0));
    entries([(form.entry.clone(), 0)].into_iter().chain(count), kernel, 0)
}

fn entries(
    own: impl Iterator<Item = (String, u32)>,
    kernel: &PluginKernel,
    copy_threads: u32,
) -> Vec<EntryPoint> {
    let copies = (0..kernel.aliases().len()).map(|k| (format!("{COPY}{k}"), copy_threads));
    own.chain(copies)
        .map(|(name, threads)| EntryPoint {
            name,
            threads,
            maps: None,
            cluster: 1,
            together: false,
            early: false,
        })
        .collect()
}

/// The bindings of a kernel, argument words left out: inputs, outputs, workspace, sizes.
pub fn bindings(graph: &Graph, kernel: &PluginKernel) -> Vec<Binding> {
    let o = operands(graph);
    let inputs = (0..o.inputs.len() as u32).map(|i| Binding::Input(i, 0));
    let outputs = (0..o.outputs.len() as u32).map(|j| Binding::Output(j, 0));
    let memory = kernel.has_workspace().then_some(Binding::Scratch);
    inputs.chain(outputs).chain(memory).chain(kernel.counts().then_some(Binding::Sizes)).collect()
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
pub fn cuda(graph: &Graph, kernel: &PluginKernel, block: &Block, prelude: &str, head: &str) -> String {
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
    // Types and places of the tensors, the workspace and the sizes.
    let inputs = o.inputs.iter().map(|t| format!("const {}*", cuda_type(*t)));
    let outputs = o.outputs.iter().map(|t| format!("{}*", cuda_type(*t)));
    let memory = kernel.has_workspace().then(|| "void*".to_owned());
    let sizes = kernel.counts().then(|| "unsigned int*".to_owned());
    let all: Vec<String> = inputs.chain(outputs).chain(memory).chain(sizes).collect();
    let fields: String = all.iter().enumerate().map(|(b, ty)| format!(" {ty} b{b};")).collect();
    let (first, behind) = (o.inputs.len(), o.inputs.len() + o.outputs.len());
    let of_input = |i: usize| match kernel.aliases().iter().find(|a| a.0 == i) {
        Some((_, j)) => format!("k.b{}", first + j),
        None => format!("k.b{i}"),
    };
    let has_params = !form.params.is_empty();
    let text_of = |entry: &str, name: &str, threads: u32, results: &[usize]| {
        let memory = kernel.has_workspace().then_some(behind);
        let places = (0..first).chain(results.iter().copied()).chain(memory);
        let mut types: Vec<&str> = Vec::new();
        let mut args: Vec<String> = Vec::new();
        for b in places {
            types.push(all.get(b).map_or("void*", String::as_str));
            args.push(if b < first { of_input(b) } else { format!("k.b{b}") });
        }
        types.extend(has_params.then_some("Params"));
        args.extend(has_params.then(|| "p".to_owned()));
        let local = if has_params { format!("Params p;{reads} ") } else { String::new() };
        let (types, args) = (types.join(", "), args.join(", "));
        // The plug-in's entry point becomes a function that the one in front of it calls.
        let declared = format!("extern \"C\" __device__ __forceinline__ void {entry}({types});\n");
        (declared, format!("{} {local}{entry}({args}); }}\n", opening(name, threads)))
    };
    let outputs: Vec<usize> = (first..behind).collect();
    let (mut declared, mut entries) = text_of(&form.entry, ENTRY, block.threads, &outputs);
    if let (Some(c), Some(threads)) = (&form.count, block.counting) {
        let (d, e) = text_of(&c.entry, COUNT, threads, &[behind + usize::from(kernel.has_workspace())]);
        declared += &d;
        entries += &e;
    }
    for (k, (i, j)) in kernel.aliases().iter().enumerate() {
        let (to, at) = (first + j, form.params.len());
        let _ = writeln!(
            entries,
            "{} const unsigned int* from = (const unsigned int*)k.b{i}; unsigned int* to = (unsigned int*)k.b{to}; for \
             (unsigned long long w = blockIdx.x * {COPY_THREADS}ull + threadIdx.x; w < k.words[{at}]; w += gridDim.x * \
             {COPY_THREADS}ull) {{ to[w] = from[w]; }} }}",
            opening(&format!("{COPY}{k}"), COPY_THREADS)
        );
    }
    let params = if has_params { format!("struct Params {{{params} }};\n") } else { String::new() };
    format!(
        "{params}{declared}namespace kiln_launch {{\n{prelude}struct K {{\n{head}{fields}\n}};\n}}\n#undef DEV\n#undef let\n#undef \
         select\n{entries}#undef __global__\n#undef __launch_bounds__\n#define __global__ __device__ __forceinline__\n#define \
         __launch_bounds__(...)\n#line 1 \"{}\"\n{}\n",
        form.tactic.replace(['"', '\\', '\n'], "_"),
        form.source
    )
}

/// The beginning of an entry point of a CUDA text.
fn opening(name: &str, threads: u32) -> String {
    format!(
        "extern \"C\" __global__ void __launch_bounds__({threads}) {name}(const __grid_constant__ kiln_launch::K k) {{ using \
         namespace kiln_launch; if (off(k, 1u)) {{ return; }} depend(); if (off(k, 0u)) {{ return; }}"
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
    let aliased = |i: usize| kernel.aliases().iter().any(|a| a.0 == i);
    if !kernel.aliases().is_empty() {
        text.push_str("    kiln_words: u32,\n");
    }
    text.push_str("}\n@group(0) @binding(0) var<storage, read> params: Params;\n");
    // An input that an output begins with is copied there, and is none of the kernel's arrays.
    let name = |i: usize| if aliased(i) { format!("kiln_from{i}") } else { format!("i{i}") };
    let inputs = o.inputs.iter().enumerate().map(|(i, t)| (name(i), wgsl_type(*t)));
    let outputs = o.outputs.iter().enumerate().map(|(j, t)| (format!("o{j}"), wgsl_type(*t)));
    let workspace = kernel.has_workspace().then(|| ("workspace".to_owned(), "u32"));
    let sizes = kernel.counts().then(|| ("sizes".to_owned(), "u32"));
    for (b, (name, ty)) in inputs.chain(outputs).chain(workspace).chain(sizes).enumerate() {
        let _ = writeln!(text, "@group(0) @binding({}) var<storage, read_write> {name}: array<{ty}>;", b + 1);
    }
    for (k, (i, j)) in kernel.aliases().iter().enumerate() {
        let words = if o.outputs.get(*j) == Some(&DType::I64) { 2 } else { 1 };
        let _ = writeln!(
            text,
            "@compute @workgroup_size({COPY_THREADS}) fn {COPY}{k}(@builtin(global_invocation_id) at: vec3<u32>, \
             @builtin(num_workgroups) groups: vec3<u32>) {{\n    for (var w = at.x; w < params.kiln_words / {words}u; w += \
             groups.x * {COPY_THREADS}u) {{ o{j}[w] = kiln_from{i}[w]; }}\n}}"
        );
    }
    text.push_str(&form.source);
    text.push('\n');
    Ok(text)
}
