//! Layers of plug-ins: `plugin`, and `plugin_pointwise` for those with an expression form.

pub mod formula;
pub mod kernel;
pub mod native;
pub mod packings;
pub mod pattern;
pub mod record;
pub mod registry;
pub mod scalar;
pub mod shapes;
pub mod types;

use crate::pointwise;
use crate::util::PLAIN;
use formula::{InputPart, input_part};
use kernel::KernelForm;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::{Dim, Origin, Symbol};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::expr::Expr;
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{Op, OpDef, Tolerance, attr, required, variadic};
use kiln_ir::problem::{Problem, Rng, op};
use kiln_ir::tensor::Tensor;
use kiln_ir::ty::TensorType;
use packings::Packings;
use record::{Arrangement, LayerName, LayerRecord, LayerRun};

kiln_ir::op_names! {
    PLUGIN = "plugin",
    PLUGIN_POINTWISE = "plugin_pointwise",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: PLUGIN,
        doc: "The layer `plugin` of this `namespace` and `version`, from the plug-in library `library` (name, version and \
              hash), with its `fields`, a CBOR map of attributes. A pure function of fields and inputs. `outputs` is a CBOR \
              array of tensor types. Their dimensions are expressions over dimensions \"i<input>.d<axis>\" and elements \
              \"i<input>.v<number>\" of inputs, each a host symbol, and over sizes that the layer finds, each a device symbol \
              with an upper bound. `kernels` is a CBOR array of kernels in source form, `natives` one of native forms. `workspace` is the formula of the \
              bytes of memory beside inputs and outputs. `aliases` holds pairs of an input and the output that begins with \
              its contents. `tolerance` names the difference allowed between forms. `packings` is a CBOR map of formats: inputs and results \
              have their shapes in memory, and all dimensions that attributes name are those of the linear format.",
        inputs: &[variadic("inputs")],
        outputs: &[],
        attrs: &[
            attr("namespace", || "".into()),
            required("plugin", || "".into()),
            attr("version", || "1".into()),
            attr("library", || "".into()),
            attr("fields", || Attr::Bytes(Vec::new())),
            required("outputs", || Attr::Bytes(Vec::new())),
            attr("aliases", || Attr::Ints(Vec::new())),
            attr("workspace", || "".into()),
            attr("kernels", || Attr::Bytes(Vec::new())),
            attr("tolerance", || "".into()),
            attr("natives", || Attr::Bytes(Vec::new())),
            attr("packings", || Attr::Bytes(Vec::new())),
        ],
        infer,
        eval,
        tolerance: Tolerance::ByAttrs(|a| match a.str("tolerance") {
            Ok("exact") => Tolerance::Exact,
            Ok("sum") => Tolerance::Sum,
            _ => Tolerance::Conditioned,
        }),
        ..PLAIN
    },
    OpDef {
        name: PLUGIN_POINTWISE,
        doc: "The pointwise layer `plugin` of a plug-in library by its `expression`: a formula over the elements x0, x1, … of \
              inputs, which are broadcast, and `fields` that are one number. The result has elements of type `dtype`.",
        inputs: &[variadic("inputs")],
        attrs: &[
            attr("namespace", || "".into()),
            required("plugin", || "".into()),
            attr("version", || "1".into()),
            attr("library", || "".into()),
            attr("fields", || Attr::Bytes(Vec::new())),
            required("expression", || "".into()),
            attr("dtype", || DType::F32.into()),
        ],
        infer: pointwise::infer,
        eval: pointwise::eval,
        expr: Some(expr),
        tolerance: Tolerance::Transcendental,
        problems: |rng| pointwise_problems(rng),
        ..PLAIN
    },
];

/// The most outputs of one plug-in.
const MAX_OUTPUTS: u64 = 1024;

/// The operator of a layer with these fields, for inputs of these types; its tensors have the formats of its [`Packings`], those of the
/// first combination that takes the inputs.
pub fn layer_op(record: &LayerRecord, fields: &Attrs, inputs: &[TensorType]) -> Result<Op, OpError> {
    layer_op_as(record, fields, inputs, 0)
}

/// An operator like [`layer_op`] by the combinations of formats from number `first` on; an error where none of them takes the inputs.
pub fn layer_op_as(
    record: &LayerRecord,
    fields: &Attrs,
    inputs: &[TensorType],
    first: usize,
) -> Result<Op, OpError> {
    let fields = record.complete(fields)?;
    let dtypes: Vec<DType> = inputs.iter().map(|t| t.dtype).collect();
    let outputs = record.outputs(&fields, inputs)?;
    let library = &record.library;
    let named = Attrs::new()
        .with("namespace", record.name.space.as_str())
        .with("plugin", record.name.name.as_str())
        .with("version", record.name.version.as_str())
        .with("library", [&*library.name, &*library.version, &*library.digest].join(" ").trim())
        .with("fields", Attr::Bytes(minicbor::to_vec(&fields).unwrap_or_default()));
    if let Some(text) = &record.expression {
        let dtype = outputs.first().map_or(DType::F32, |t| t.dtype);
        scalar::expression(text, &fields, &dtypes, dtype)?;
        let attrs = named.with("expression", text.as_str()).with("dtype", dtype);
        return Op::from_def(&OPS[1], attrs);
    }
    // A layer without a list of types has linear tensors, and its functions decide on them.
    let chosen = match record.types.is_empty() {
        true => None,
        false => Some(Packings::choose(record.types.get(first..).unwrap_or_default(), inputs, &outputs)?),
    };
    let fits = |types: &[types::Combination]| {
        let Some((combination, _)) = &chosen else { return true };
        types.is_empty() || types.iter().any(|t| t.takes_as(&dtypes, combination))
    };
    let kernels: Vec<KernelForm> =
        record.kernels.iter().filter(|k| fits(&k.types)).map(|k| k.form.clone()).collect();
    let natives: Vec<native::NativeForm> =
        record.natives.iter().filter(|n| fits(&n.types)).map(|n| n.form.clone()).collect();
    let pairs = record.aliases.iter().flat_map(|&(i, o)| [i as i64, o as i64]).collect::<Vec<_>>();
    let mut attrs = named
        .with("outputs", Attr::Bytes(encode_outputs(&outputs)))
        .with("aliases", pairs)
        .with("workspace", record.workspace.as_str())
        .with("kernels", Attr::Bytes(kernel::encode(&kernels)))
        .with("tolerance", record.tolerance.as_str())
        .with("natives", Attr::Bytes(native::encode(&natives)));
    if let Some(formats) = chosen.as_ref().and_then(|(_, packings)| packings.to_attr()) {
        attrs.set("packings", formats);
    }
    Op::from_def(&OPS[0], attrs)
}

/// The layer that an operator of this family names.
pub fn name(attrs: &Attrs) -> Result<LayerName, OpError> {
    let text = |key: &str| attrs.str(key).map(str::to_owned);
    Ok(LayerName { space: text("namespace")?, name: text("plugin")?, version: text("version")? })
}

/// Name and version of the library that an operator of this family comes from, and the hash of the file; may be empty.
pub fn library(attrs: &Attrs) -> Result<[&str; 3], OpError> {
    let mut parts = attrs.str("library")?.splitn(3, ' ');
    Ok(std::array::from_fn(|_| parts.next().unwrap_or_default()))
}

/// The fields of an operator of this family.
pub fn fields(attrs: &Attrs) -> Result<Attrs, OpError> {
    match attrs.get("fields") {
        Some(Attr::Bytes(b)) if !b.is_empty() => minicbor::decode(b).map_err(|e| OpError::Attr {
            name: "fields".into(),
            found: e.to_string(),
            wanted: "a CBOR map of attributes".into(),
        }),
        _ => Ok(Attrs::new()),
    }
}

/// The kernels in source form of an operator `plugin`.
pub fn kernels(attrs: &Attrs) -> Result<Vec<KernelForm>, OpError> {
    match attrs.get("kernels") {
        Some(Attr::Bytes(b)) if !b.is_empty() => kernel::decode(b),
        _ => Ok(Vec::new()),
    }
}

/// The native forms of an operator `plugin`.
pub fn natives(attrs: &Attrs) -> Result<Vec<native::NativeForm>, OpError> {
    match attrs.get("natives") {
        Some(Attr::Bytes(b)) => native::decode(b),
        _ => Ok(Vec::new()),
    }
}

/// Types as the attribute `outputs` has them.
fn encode_outputs(types: &[TensorType]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut e = minicbor::Encoder::new(&mut bytes);
    let written = e.array(types.len() as u64).is_ok() && types.iter().all(|t| e.encode(t).is_ok());
    if written { bytes } else { Vec::new() }
}

fn decode_outputs(bytes: &[u8]) -> Result<Vec<TensorType>, OpError> {
    let bad = |e: minicbor::decode::Error| OpError::Attr {
        name: "outputs".into(),
        found: e.to_string(),
        wanted: "a CBOR array of tensor types".into(),
    };
    let mut d = minicbor::Decoder::new(bytes);
    let n = d.array().map_err(bad)?.filter(|&n| n <= MAX_OUTPUTS);
    let n = n.ok_or_else(|| OpError::Attr {
        name: "outputs".into(),
        found: "of unknown or too great a length".into(),
        wanted: format!("at most {MAX_OUTPUTS} types"),
    })?;
    (0..n).map(|_| d.decode().map_err(bad)).collect()
}

/// The pairs (input, output) of an operator `plugin` that are the same memory.
pub fn aliases(attrs: &Attrs) -> Result<Vec<(usize, usize)>, OpError> {
    let v = attrs.ints("aliases")?;
    let pair = |p: &[i64]| Some((usize::try_from(*p.first()?).ok()?, usize::try_from(*p.get(1)?).ok()?));
    v.chunks(2).map(pair).collect::<Option<_>>().ok_or_else(|| OpError::Attr {
        name: "aliases".into(),
        found: format!("{v:?}"),
        wanted: "pairs of an input and an output".into(),
    })
}

/// Bytes of workspace for inputs of which this is known.
pub fn workspace(attrs: &Attrs, fields: &Attrs, inputs: Vec<&Fact>) -> Result<u64, OpError> {
    let formula = attrs.str("workspace")?;
    if formula.is_empty() {
        return Ok(0);
    }
    let packings = Packings::of_attrs(attrs)?;
    let found = kernel::Site { packings: &packings, ..kernel::Site::new(inputs, fields) }.number(formula)?;
    found.int().and_then(|n| u64::try_from(n).ok()).ok_or_else(|| {
        OpError::Value(format!("workspace \"{formula}\" is {}, wants a number of bytes", found.float()))
    })
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let types = described(cx.attrs)?;
    let packings = Packings::of_attrs(cx.attrs)?;
    let mut facts = Vec::with_capacity(types.len());
    for (j, t) in types.into_iter().enumerate() {
        let dims = t.dims.iter().map(|d| resolve(cx, &packings, d)).collect::<Result<_, _>>()?;
        let ty = TensorType { dtype: t.dtype, dims };
        let dims = match packings.output(j) {
            p if p.is_linear() => ty.dims,
            p => Packings::physical(p, &ty)?,
        };
        facts.push(Fact::of(TensorType { dtype: t.dtype, dims }));
    }
    for (i, o) in aliases(cx.attrs)? {
        let same = cx.fact(i).zip(facts.get(o)).is_some_and(|(a, b)| a.ty == b.ty);
        if !same {
            let wanted = "an input and an output of the same type".into();
            return Err(OpError::Attr { name: "aliases".into(), found: format!("{i}, {o}"), wanted });
        }
    }
    Ok(facts)
}

/// A dimension of an output in terms of what the inputs' dimensions are.
fn resolve(cx: &InferCx<'_>, packings: &Packings, d: &Dim) -> Result<Dim, OpError> {
    let mut unknown = None;
    d.visit(&mut |s: &Symbol| {
        if matches!(s.origin, Origin::Host(_) | Origin::Content) && lookup(cx, packings, &s.name).is_none() {
            unknown = Some(s.name.to_string());
        }
    });
    if let Some(name) = unknown {
        if let Some((input, InputPart::Element(_))) = input_part(&name).filter(|&(i, _)| cx.has(i)) {
            let wanted = "known before the run, as an output's size is made of it; make it a constant".into();
            return Err(OpError::NeedsValue { input, name: "inputs".into(), wanted });
        }
        let wanted = "symbols i<input>.d<axis> of dimensions that exist".into();
        return Err(OpError::Attr {
            name: "outputs".into(),
            found: format!("with the symbol \"{name}\""),
            wanted,
        });
    }
    Ok(d.substitute(&|s: &Symbol| match &s.origin {
        Origin::Device(bound) => {
            let bound = bound.as_deref().map(|b| b.substitute(&|s: &Symbol| lookup(cx, packings, &s.name)));
            Some(cx.fresh_device(&s.name, bound))
        }
        _ => lookup(cx, packings, &s.name),
    }))
}

fn lookup(cx: &InferCx<'_>, packings: &Packings, name: &str) -> Option<Dim> {
    match input_part(name)? {
        (input, InputPart::Size(axis)) => {
            Packings::dims(packings.input(input), cx.dims(input).ok()?).ok()?.get(axis).cloned()
        }
        (input, InputPart::Element(n)) => cx.contents(input)?.get(n).cloned(),
        _ => None,
    }
}

/// Runs the reference form, here or by the host of this library.
fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let inputs: Vec<Tensor> = (0..cx.len()).map(|i| cx.input(i).cloned()).collect::<Result<_, _>>()?;
    let layer = name(cx.attrs())?;
    let record = registry::find(&layer.space, &layer.name, Some(&layer.version));
    let found = match (record, registry::host()) {
        (Some(r), _) => {
            let packings = Packings::of_attrs(cx.attrs())?;
            let fields = fields(cx.attrs())?;
            let facts: Vec<Fact> = inputs.iter().cloned().map(Fact::constant).collect();
            let outputs = packings.linear_types(cx.out_types())?;
            let made = r.functions.run(&LayerRun {
                fields: &fields,
                workspace: workspace(cx.attrs(), &fields, facts.iter().collect())?,
                aliases: &aliases(cx.attrs())?,
                inputs: &packings.unpack(&inputs)?,
                outputs: &outputs,
                arrangement: Arrangement::Dense,
            })?;
            packings.pack_outputs(&made)?
        }
        (None, Some(host)) => (host.run)(cx.op, &inputs)?,
        (None, None) => {
            let [name, version, _] = library(cx.attrs())?;
            return Err(registry::missing(&layer, format!("{name} {version}").trim()));
        }
    };
    check_results(&layer, &found, cx.out_types())?;
    Ok(found)
}

/// The names of the sizes that an operator `plugin` finds, in the order of their first appearance in the types of its results.
pub fn found_sizes(attrs: &Attrs) -> Result<Vec<String>, OpError> {
    let mut names: Vec<String> = Vec::new();
    for d in described(attrs)?.iter().flat_map(|t| &t.dims) {
        d.visit(&mut |s: &Symbol| {
            if matches!(s.origin, Origin::Device(_)) && names.iter().all(|n| *n != *s.name) {
                names.push(s.name.to_string());
            }
        });
    }
    Ok(names)
}

/// The sizes that a run found, by their names: those in which the types of an operator's results are numbers in the run.
pub fn sizes_of_run(attrs: &Attrs, run: &[&Fact]) -> Result<Vec<(String, i64)>, OpError> {
    let packings = Packings::of_attrs(attrs)?;
    let mut found: Vec<(String, i64)> = Vec::new();
    for (j, (t, fact)) in described(attrs)?.iter().zip(run).enumerate() {
        let dims = Packings::dims(packings.output(j), &fact.ty.dims)?;
        for (d, n) in t.dims.iter().zip(&dims) {
            let Some(n) = n.as_const() else { continue };
            d.visit(&mut |s: &Symbol| {
                if matches!(s.origin, Origin::Device(_)) && found.iter().all(|f| *f.0 != *s.name) {
                    found.push((s.name.to_string(), n));
                }
            });
        }
    }
    Ok(found)
}

/// The types of results as the layer describes them.
fn described(attrs: &Attrs) -> Result<Vec<TensorType>, OpError> {
    decode_outputs(match attrs.get("outputs") {
        Some(Attr::Bytes(b)) => b,
        _ => &[],
    })
}

/// Makes a native form of a layer ready for a context, here or by the host of this library.
pub fn attach_native(
    op: &Op,
    device: native::NativeDevice,
    tactic: &str,
    call: &native::NativeCall,
) -> Result<Box<dyn native::NativeRun>, OpError> {
    if !op.is(PLUGIN) {
        return Err(OpError::Value(format!("operator \"{}\", wants a plug-in layer", op.name())));
    }
    let layer = name(op.attrs())?;
    let record = registry::find(&layer.space, &layer.name, Some(&layer.version));
    match (record, registry::host()) {
        (Some(r), _) => r.functions.attach(&fields(op.attrs())?, device, tactic, call),
        (None, Some(host)) => (host.attach)(op, device, tactic, call),
        (None, None) => {
            let [name, version, _] = library(op.attrs())?;
            Err(registry::missing(&layer, format!("{name} {version}").trim()))
        }
    }
}

/// Refuses results that are not of the types that inference found.
fn check_results(layer: &LayerName, found: &[Tensor], wanted: &[TensorType]) -> Result<(), OpError> {
    let fits = |t: &Tensor, ty: &TensorType| {
        let within = |(&n, d): (&usize, &Dim)| match d.as_const() {
            Some(size) => n as i64 == size,
            None => d.upper_bound().and_then(|b| b.as_const()).is_none_or(|b| n as i64 <= b),
        };
        t.dtype() == ty.dtype && t.shape().len() == ty.rank() && t.shape().iter().zip(&ty.dims).all(within)
    };
    if found.len() == wanted.len() && found.iter().zip(wanted).all(|(t, ty)| fits(t, ty)) {
        return Ok(());
    }
    let list = |all: Vec<String>| all.join(", ");
    Err(OpError::Value(format!(
        "plug-in layer {layer} made {}, wants {}",
        list(found.iter().map(|t| t.ty().to_string()).collect()),
        list(wanted.iter().map(TensorType::to_string).collect())
    )))
}

fn expr(attrs: &Attrs, types: &[DType]) -> Result<Expr, OpError> {
    scalar::expression(attrs.str("expression")?, &fields(attrs)?, types, attrs.dtype("dtype")?)
}

fn pointwise_problems(rng: &mut Rng) -> Vec<Problem> {
    let beta = minicbor::to_vec(Attrs::new().with("beta", 1.5)).unwrap_or_default();
    let of = |expression: &str, dtype: DType| {
        let attrs =
            Attrs::new().with("plugin", "problem").with("expression", expression).with("dtype", dtype);
        op(PLUGIN_POINTWISE, attrs.with("fields", Attr::Bytes(beta.clone())))
    };
    let floats = [DType::F32, DType::F16];
    let mut all = Vec::new();
    for t in floats {
        all.extend(pointwise::problems_of(&of("x0 / (1 + exp(-beta * x0))", t), 1, &[t], rng));
        all.extend(pointwise::problems_of(&of("select(x0 < x1, beta * x0, max(x1, 0))", t), 2, &[t], rng));
    }
    all.extend(pointwise::problems_of(&of("x0 / 3 + abs(x0)", DType::I32), 1, &[DType::I32], rng));
    all
}

#[cfg(test)]
mod tests;
