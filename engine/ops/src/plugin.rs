//! `plugin`: an opaque layer that a plug-in implements.

use crate::util::PLAIN;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::{Dim, Origin, Symbol};
use kiln_ir::error::OpError;
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{OpDef, Tolerance, Traits, attr, required, variadic};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    PLUGIN = "plugin",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: PLUGIN,
    doc: "What the plug-in `plugin` of this `namespace` and `version` does with its serialized `fields`. `outputs` is a \
          CBOR array of tensor types; their dimensions are expressions over the dimensions of inputs, each a host symbol \
          \"i<input>.d<axis>\", and over sizes that the plug-in computes, each a device symbol with an upper bound. \
          `formats` lists the combinations that it takes, each the formats of inputs and outputs separated by commas \
          (none: linear only). `aliases` holds pairs of an input and the output that is the same memory.",
    inputs: &[variadic("inputs")],
    outputs: &[],
    attrs: &[
        attr("namespace", || "".into()),
        required("plugin", || "".into()),
        attr("version", || "1".into()),
        attr("fields", || Attr::Bytes(Vec::new())),
        required("outputs", || Attr::Bytes(Vec::new())),
        attr("formats", || Attr::Strs(Vec::new())),
        attr("aliases", || Attr::Ints(Vec::new())),
    ],
    infer,
    eval: |cx| Err(OpError::Unsupported(format!("{} has no reference implementation", title(cx.attrs())?))),
    // Nobody knows what it does: it stays, and is never evaluated while building.
    traits: Traits { side_effect: true, ..Traits::PURE },
    tolerance: Tolerance::Conditioned,
    ..PLAIN
}];

/// The most outputs of one plug-in.
const MAX_OUTPUTS: u64 = 1024;

/// The dimension of an input in the expressions of `outputs`.
pub fn input_dim(input: usize, axis: usize) -> Dim {
    Dim::host(format!("i{input}.d{axis}"))
}

/// Types as the attribute `outputs` has them.
pub fn encode_outputs(types: &[TensorType]) -> Vec<u8> {
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

fn title(attrs: &Attrs) -> Result<String, OpError> {
    let (space, name, version) = (attrs.str("namespace")?, attrs.str("plugin")?, attrs.str("version")?);
    let space = if space.is_empty() { String::new() } else { format!("{space}::") };
    Ok(format!("plug-in \"{space}{name}\", version {version}"))
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let types = decode_outputs(match cx.attrs.get("outputs") {
        Some(Attr::Bytes(b)) => b,
        _ => &[],
    })?;
    let mut facts = Vec::with_capacity(types.len());
    for t in types {
        let dims = t.dims.iter().map(|d| resolve(cx, d)).collect::<Result<_, _>>()?;
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
fn resolve(cx: &InferCx<'_>, d: &Dim) -> Result<Dim, OpError> {
    let mut unknown = None;
    d.visit(&mut |s: &Symbol| {
        if matches!(s.origin, Origin::Host(_) | Origin::Content) && lookup(cx, &s.name).is_none() {
            unknown = Some(s.name.to_string());
        }
    });
    if let Some(name) = unknown {
        let wanted = "symbols i<input>.d<axis> of dimensions that exist".into();
        return Err(OpError::Attr {
            name: "outputs".into(),
            found: format!("with the symbol \"{name}\""),
            wanted,
        });
    }
    Ok(d.substitute(&|s: &Symbol| match &s.origin {
        Origin::Device(bound) => {
            let bound = bound.as_deref().map(|b| b.substitute(&|s: &Symbol| lookup(cx, &s.name)));
            Some(cx.fresh_device(&s.name, bound))
        }
        _ => lookup(cx, &s.name),
    }))
}

fn lookup(cx: &InferCx<'_>, name: &str) -> Option<Dim> {
    let (input, axis) = name.strip_prefix('i')?.split_once(".d")?;
    cx.dims(input.parse().ok()?).ok()?.get(axis.parse::<usize>().ok()?).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{f32s, infer as facts, run_all};
    use kiln_ir::{DType, Op};

    fn attrs(types: &[TensorType]) -> Attrs {
        let a = Attrs::new().with("plugin", "Crop").with("namespace", "acme").with("version", "2");
        a.with("outputs", encode_outputs(types))
    }

    #[test]
    fn shapes_follow_the_inputs() {
        let half = input_dim(0, 1).floor_div(&2.into());
        let count = Dim::device("count", Some(input_dim(0, 0)));
        let types =
            [TensorType::new(DType::F16, [input_dim(1, 0), half]), TensorType::new(DType::I32, [count])];
        let ins = [(DType::F32, vec![Dim::host("n"), 7.into()]), (DType::F32, vec![5.into()])];
        let out = facts("plugin", attrs(&types), &ins).unwrap();
        assert_eq!(out[0].ty.to_string(), "f16[5,3]");
        assert_eq!(out[1].ty.dims[0].upper_bound(), Some(Dim::host("n")));
    }

    #[test]
    fn it_is_named_where_it_can_not_run() {
        let e = run_all("plugin", attrs(&[]), &[Some(f32s(&[1], &[0.0]))]).unwrap_err();
        assert_eq!(
            e.to_string(),
            "not supported: plug-in \"acme::Crop\", version 2 has no reference implementation"
        );
        let op = Op::new("plugin", attrs(&[])).unwrap();
        let constant = Some(Fact::constant(f32s(&[1], &[0.0])));
        assert!(op.infer(&[constant], "p").unwrap().is_empty());
    }

    #[test]
    fn bad_descriptions_are_refused() {
        let x = [(DType::F32, vec![2.into()])];
        let types = [TensorType::new(DType::F32, [input_dim(0, 3)])];
        let e = facts("plugin", attrs(&types), &x).unwrap_err().to_string();
        assert!(e.contains("\"i0.d3\""), "{e}");
        let types = [TensorType::new(DType::F16, [input_dim(0, 0)])];
        let e = facts("plugin", attrs(&types).with("aliases", vec![0i64, 0]), &x).unwrap_err().to_string();
        assert!(e.contains("of the same type"), "{e}");
        let e = facts("plugin", attrs(&types).with("aliases", vec![0i64]), &x).unwrap_err().to_string();
        assert!(e.contains("pairs"), "{e}");
        let e = facts("plugin", attrs(&[]).with("outputs", vec![0x9bu8, 255]), &x).unwrap_err().to_string();
        assert!(e.contains("outputs"), "{e}");
    }
}
