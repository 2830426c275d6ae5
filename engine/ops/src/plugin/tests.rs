//! Tests of both operators with a layer that is defined here.

use super::record::{FieldDef, LayerFunctions, Library};
use super::shapes::Shape;
use super::types::Combination;
use super::*;
use crate::testing::{f32s, infer as facts, run_all};
use std::sync::Arc;

/// Picks the positive elements of a vector, at most `most`.
struct Positive;

impl LayerFunctions for Positive {
    fn check(&self, fields: &Attrs) -> Result<(), OpError> {
        match fields.int("most")? {
            0.. => Ok(()),
            n => Err(OpError::Value(format!("most is {n}, wants 0 or more"))),
        }
    }

    fn describe(&self, _: &Attrs, _: &[TensorType]) -> Result<String, OpError> {
        Ok(String::new())
    }

    fn run(&self, run: &LayerRun<'_>) -> Result<Vec<Tensor>, OpError> {
        let LayerRun { fields, workspace, inputs, .. } = *run;
        assert_eq!(workspace, 4 * inputs[0].len() as u64);
        let mut v = inputs[0].to_f64();
        v.retain(|x| *x > 0.0);
        if fields.int("most")? != 99 {
            v.truncate(fields.int("most")? as usize);
        }
        Ok(vec![f32s(&[v.len()], &v)])
    }
}

fn record(name: &str) -> LayerRecord {
    LayerRecord {
        name: LayerName { space: "test".into(), name: name.into(), version: "2".into() },
        doc: String::new(),
        fields: vec![FieldDef {
            name: "most".into(),
            doc: String::new(),
            required: false,
            default: Attr::Int(2),
        }],
        types: Combination::list("f32:f32").unwrap(),
        shapes: Some(Shape::list("[n <= min(i0.d0, 3)]").unwrap()),
        aliases: Vec::new(),
        workspace: "4 * i0.size".into(),
        expression: None,
        tolerance: "exact".into(),
        kernels: Vec::new(),
        natives: Vec::new(),
        patterns: Vec::new(),
        library: Library {
            name: "lib".into(),
            version: "1.0".into(),
            digest: "abc".into(),
            path: "/lib".into(),
        },
        functions: Arc::new(Positive),
    }
}

fn op_of(record: &LayerRecord, fields: &Attrs) -> Result<Op, OpError> {
    layer_op(record, fields, &[TensorType::new(DType::F32, [Dim::host("n")])])
}

#[test]
fn a_registered_layer_is_evaluated_and_its_results_are_checked() {
    let r = registry::register(record("Positive")).unwrap();
    r.check().unwrap();
    let op = op_of(&r, &Attrs::new()).unwrap();
    assert_eq!(library(op.attrs()).unwrap(), ["lib", "1.0", "abc"]);
    assert!(matches!(op.tolerance(), Tolerance::Exact));
    let x = Some(f32s(&[5], &[1.0, -1.0, 2.0, 3.0, 4.0]));
    assert_eq!(op.eval(std::slice::from_ref(&x)).unwrap(), [f32s(&[2], &[1.0, 2.0])]);
    let facts = op.infer(&[Some(Fact::of(TensorType::new(DType::F32, [Dim::host("n")])))], "p").unwrap();
    assert_eq!(facts[0].ty.dims[0].upper_bound().unwrap().to_string(), "min(3, n)");
    let many = op_of(&r, &Attrs::new().with("most", 99i64)).unwrap();
    let e = many.eval(&[x]).unwrap_err().to_string();
    assert!(e.contains("\"test::Positive\", version 2 made f32[4], wants f32[?"), "{e}");
}

#[test]
fn fields_are_checked() {
    let r = record("Fields");
    for (fields, says) in [
        (Attrs::new().with("last", 1i64), "one of most: there is no such field"),
        (Attrs::new().with("most", "1"), "is a string, wants an integer"),
        (Attrs::new().with("most", -1i64), "wants 0 or more"),
    ] {
        let e = op_of(&r, &fields).unwrap_err().to_string();
        assert!(e.contains(says), "{e}");
    }
    let mut needed = record("Needed");
    needed.fields[0].required = true;
    assert!(op_of(&needed, &Attrs::new()).unwrap_err().to_string().contains("is missing"));
    let e = layer_op(&r, &Attrs::new(), &[TensorType::new(DType::I64, [1])]).unwrap_err().to_string();
    assert!(e.contains("f32:f32, found i64"), "{e}");
}

#[test]
fn a_second_library_with_the_same_layer_is_refused() {
    registry::register(record("Twice")).unwrap();
    assert!(registry::register(record("Twice")).is_ok());
    let mut other = record("Twice");
    other.library.path = "/other".into();
    let there = registry::register(other).unwrap_err();
    assert_eq!(there.library.path.to_str(), Some("/lib"));
}

/// Takes any field and any type: as many outputs as `outputs` says, all of the first input's type.
struct Open;

impl LayerFunctions for Open {
    fn check(&self, fields: &Attrs) -> Result<(), OpError> {
        fields.int("outputs").map(drop)
    }

    fn output_types(&self, fields: &Attrs, inputs: &[TensorType]) -> Result<Vec<DType>, OpError> {
        Ok(vec![inputs[0].dtype; fields.int("outputs")? as usize])
    }

    fn describe(&self, fields: &Attrs, _: &[TensorType]) -> Result<String, OpError> {
        Ok(vec!["[i0.d*]"; fields.int("outputs")? as usize].join("; "))
    }

    fn run(&self, run: &LayerRun<'_>) -> Result<Vec<Tensor>, OpError> {
        Ok(vec![run.inputs[0].clone(); run.outputs.len()])
    }
}

#[test]
fn functions_decide_where_no_types_are_listed() {
    let r = LayerRecord {
        types: Vec::new(),
        fields: Vec::new(),
        shapes: None,
        workspace: String::new(),
        functions: Arc::new(Open),
        ..record("Open")
    };
    r.check().unwrap();
    let r = registry::register(r).unwrap();
    for (dtype, outputs) in [(DType::F16, 1), (DType::I32, 2)] {
        let fields = Attrs::new().with("outputs", outputs).with("other", "x");
        let op = layer_op(&r, &fields, &[TensorType::new(dtype, [2, 3])]).unwrap();
        assert_eq!(super::fields(op.attrs()).unwrap(), fields);
        let input = [(dtype, vec![Dim::from(2), Dim::from(3)])];
        let found = facts("plugin", op.attrs().clone(), &input).unwrap();
        assert_eq!(found.len(), outputs as usize);
        assert!(found.iter().all(|f| f.ty == TensorType::new(dtype, [2, 3])));
    }
    assert!(layer_op(&r, &Attrs::new(), &[TensorType::new(DType::F32, [1])]).is_err());
}

#[test]
fn wrong_records_are_refused() {
    let refused = |change: fn(&mut LayerRecord), says: &str| {
        let mut r = record("Wrong");
        change(&mut r);
        let e = r.check().unwrap_err().to_string();
        assert!(e.contains(says), "{e}");
    };
    refused(|r| r.name.name.clear(), "0 bytes");
    refused(|r| r.fields[0].name = "a b".into(), "\"a b\"");
    refused(|r| r.fields.push(r.fields[0].clone()), "a name of its own");
    refused(|r| r.types = Combination::list("f32:f32; f16:f16,f16").unwrap(), "another number of outputs");
    refused(|r| r.shapes = Some(Vec::new()), "0 shapes of 1");
    refused(|r| r.aliases = vec![(0, 1)], "output 1 of 1");
    refused(|r| r.expression = Some("x0 +".into()), "wants a number");
    refused(|r| r.workspace = "(".into(), "wants a number");
    refused(|r| r.tolerance = "none".into(), "exact, sum, conditioned");
}

#[test]
fn expressions_become_pointwise_operators() {
    let mut r = record("Scaled");
    r.expression = Some("x0 * most".into());
    r.shapes = Some(Shape::list("[i0.d*]").unwrap());
    let op = op_of(&r, &Attrs::new()).unwrap();
    assert!(op.is(PLUGIN_POINTWISE) && op.is_pointwise());
    assert_eq!(op.eval(&[Some(f32s(&[2], &[1.0, 3.0]))]).unwrap(), [f32s(&[2], &[2.0, 6.0])]);
    r.expression = Some("x0 * least".into());
    assert!(op_of(&r, &Attrs::new()).unwrap_err().to_string().contains("\"least\""));
}

fn attrs(types: &[TensorType]) -> Attrs {
    let a = Attrs::new().with("plugin", "Crop").with("namespace", "acme").with("version", "2");
    a.with("outputs", encode_outputs(types))
}

fn size(input: usize, axis: usize) -> Dim {
    Dim::host(format!("i{input}.d{axis}"))
}

#[test]
fn shapes_follow_the_inputs() {
    let half = size(0, 1).floor_div(&2.into());
    let count = Dim::device("count", Some(size(0, 0)));
    let types = [TensorType::new(DType::F16, [size(1, 0), half]), TensorType::new(DType::I32, [count])];
    let ins = [(DType::F32, vec![Dim::host("n"), 7.into()]), (DType::F32, vec![5.into()])];
    let out = facts("plugin", attrs(&types), &ins).unwrap();
    assert_eq!(out[0].ty.to_string(), "f16[5,3]");
    assert_eq!(out[1].ty.dims[0].upper_bound(), Some(Dim::host("n")));
}

#[test]
fn sizes_may_be_elements_of_inputs_that_are_known() {
    let types = [TensorType::new(DType::F32, [Dim::host("i1.v0")])];
    let op = Op::new("plugin", attrs(&types)).unwrap();
    let x = Some(Fact::of(TensorType::new(DType::F32, [4])));
    let known = Some(Fact::constant(Tensor::i64(&[1], &[3]).unwrap()));
    assert_eq!(op.infer(&[x.clone(), known], "p").unwrap()[0].ty.to_string(), "f32[3]");
    let open = Some(Fact::of(TensorType::new(DType::I64, [1])));
    let e = op.infer(&[x, open], "p").unwrap_err();
    assert!(matches!(e, OpError::NeedsValue { input: 1, .. }), "{e}");
}

#[test]
fn a_layer_that_is_not_loaded_is_named() {
    let e = run_all("plugin", attrs(&[]).with("library", "acme 1.5 00ff"), &[Some(f32s(&[1], &[0.0]))])
        .unwrap_err();
    let says =
        "plug-in layer \"acme::Crop\", version 2 of the library acme 1.5 is not loaded; install the library";
    assert!(e.to_string().contains(says), "{e}");
}

#[test]
fn bad_descriptions_are_refused() {
    let x = [(DType::F32, vec![2.into()])];
    let types = [TensorType::new(DType::F32, [size(0, 3)])];
    let e = facts("plugin", attrs(&types), &x).unwrap_err().to_string();
    assert!(e.contains("\"i0.d3\""), "{e}");
    let types = [TensorType::new(DType::F16, [size(0, 0)])];
    let e = facts("plugin", attrs(&types).with("aliases", vec![0i64, 0]), &x).unwrap_err().to_string();
    assert!(e.contains("of the same type"), "{e}");
    let e = facts("plugin", attrs(&types).with("aliases", vec![0i64]), &x).unwrap_err().to_string();
    assert!(e.contains("pairs"), "{e}");
    let e = facts("plugin", attrs(&[]).with("outputs", vec![0x9bu8, 255]), &x).unwrap_err().to_string();
    assert!(e.contains("outputs"), "{e}");
}
