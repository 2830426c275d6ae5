//! Layers of plug-ins, defined here.

use crate::tests::{input, refused};
use crate::*;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::tensor::Tensor;
use kiln_ir::ty::TensorType;
use kiln_ops::plugin::record::{FieldDef, LayerFunctions, LayerName, LayerRecord, LayerRun, Library};
use kiln_ops::plugin::registry::register;
use kiln_ops::plugin::shapes::Shape;
use kiln_ops::plugin::types::Combination;
use kiln_ops::testing::f32s;
use std::sync::Arc;

/// Adds `by` to each element.
struct Shift;

impl LayerFunctions for Shift {
    fn check(&self, _: &Attrs) -> Result<(), OpError> {
        Ok(())
    }

    fn describe(&self, _: &Attrs, _: &[TensorType]) -> Result<String, OpError> {
        Ok("[i0.d*]".into())
    }

    fn run(&self, run: &LayerRun<'_>) -> Result<Vec<Tensor>, OpError> {
        let LayerRun { fields, inputs, .. } = *run;
        let by = fields.float("by")?;
        Ok(vec![f32s(inputs[0].shape(), &inputs[0].to_f64().iter().map(|x| x + by).collect::<Vec<_>>())])
    }
}

fn shift(version: &str, expression: Option<&str>) {
    let record = LayerRecord {
        name: LayerName { space: "net".into(), name: "Shift".into(), version: version.into() },
        doc: String::new(),
        fields: vec![FieldDef {
            name: "by".into(),
            doc: String::new(),
            required: true,
            default: Attr::Float(0.0),
        }],
        types: Combination::list("f32:f32").unwrap(),
        shapes: expression.map(|_| Shape::list("[i0.d*]").unwrap()),
        aliases: Vec::new(),
        workspace: String::new(),
        expression: expression.map(str::to_owned),
        tolerance: String::new(),
        kernels: Vec::new(),
        natives: Vec::new(),
        patterns: Vec::new(),
        library: Library::default(),
        functions: Arc::new(Shift),
    };
    register(record).unwrap();
}

#[test]
fn plug_in_layers_are_found_by_name_and_version() {
    shift("1.9", None);
    shift("1.10", Some("x0 + by"));
    for (version, op) in [(None, "plugin_pointwise"), (Some("1.9"), "plugin")] {
        let mut net = Network::new("n");
        let x = input(&mut net, "x", DType::F32, &[2, 2]);
        let spec = PluginSpec { version: version.map(str::to_owned), ..PluginSpec::new("net", "Shift") };
        let mut layer = net.add_plugin(&[x], spec.field("by", 2.0)).unwrap();
        layer = layer.set_fields(Attrs::new().with("by", 3i64)).unwrap();
        let y = layer.output(0).unwrap();
        assert_eq!(net.ty(y).to_string(), "f32[2,2]");
        net.mark_output(y, "y").unwrap();
        let g = net.lower().unwrap();
        assert_eq!(g.nodes().map(|(_, n)| n.op.name()).collect::<Vec<_>>(), [op]);
        let out = g.eval(&[f32s(&[2, 2], &[0.0, 1.0, 2.0, 3.0])]).unwrap();
        assert_eq!(out, [f32s(&[2, 2], &[3.0, 4.0, 5.0, 6.0])]);
    }
}

#[test]
fn wrong_plug_in_layers_are_refused() {
    shift("1.9", None);
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::F32, &[2]);
    let i = input(&mut net, "i", DType::I64, &[2]);
    let spec = PluginSpec::new("net", "Shift").version("1.9");
    refused(
        net.add_plugin(&[x], PluginSpec::new("net", "Nothing")),
        "\"net::Nothing\", version any is not loaded",
    );
    refused(net.add_plugin(&[x], spec.clone().version("7")), "(loaded: version 1.");
    refused(net.add_plugin(&[x], spec.clone()), "attribute \"by\" is missing");
    refused(net.add_plugin(&[i], spec.clone().field("by", 1.0)), "takes inputs of types f32:f32, found i64");
    refused(net.add_plugin(&[x, x], spec.clone().field("by", 1.0)), "found f32,f32");
    refused(net.add_plugin(&[x], spec.field("by", "1")), "is a string, wants a float");
}

/// A layer whose result has a shape of its own.
struct Fixed;

impl LayerFunctions for Fixed {
    fn check(&self, _: &Attrs) -> Result<(), OpError> {
        Ok(())
    }

    fn describe(&self, _: &Attrs, _: &[TensorType]) -> Result<String, OpError> {
        Ok("[2]".into())
    }

    fn run(&self, _: &LayerRun<'_>) -> Result<Vec<Tensor>, OpError> {
        Ok(vec![f32s(&[2], &[0.0; 2])])
    }
}

#[test]
fn plug_in_layers_see_an_implicit_batch_as_their_first_dimension() {
    let record = |name: &str, functions: Arc<dyn LayerFunctions>| LayerRecord {
        name: LayerName { space: "batch".into(), name: name.into(), version: "1".into() },
        doc: String::new(),
        fields: vec![FieldDef {
            name: "by".into(),
            doc: String::new(),
            required: false,
            default: Attr::Float(1.0),
        }],
        types: Combination::list("f32:f32").unwrap(),
        shapes: None,
        aliases: Vec::new(),
        workspace: String::new(),
        expression: None,
        tolerance: String::new(),
        kernels: Vec::new(),
        natives: Vec::new(),
        patterns: Vec::new(),
        library: Library::default(),
        functions,
    };
    register(record("Shift", Arc::new(Shift))).unwrap();
    register(record("Fixed", Arc::new(Fixed))).unwrap();
    let mut net = Network::with_implicit_batch("old");
    let x = input(&mut net, "x", DType::F32, &[2]);
    let y = net.add_plugin(&[x], PluginSpec::new("batch", "Shift")).unwrap().output(0).unwrap();
    assert_eq!((net.ty(y).to_string(), net.fact(y).ty.to_string()), ("f32[2]".into(), "f32[batch,2]".into()));
    net.mark_output(y, "y").unwrap();
    let out = crate::tests::run(&net, &[f32s(&[3, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])]);
    assert_eq!(out, [f32s(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]);
    let lost = net.add_plugin(&[x], PluginSpec::new("batch", "Fixed"));
    refused(lost, "\"plugin.2\": its result f32[2] does not have the batch as its first dimension");
}
