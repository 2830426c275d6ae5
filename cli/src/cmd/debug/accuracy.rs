//! `kiln debug accuracy`: the error of each layer in narrow types against the network in f32. Layers that keep f32 have the reason.

use super::precision::base;
use super::prepared::Prepared;
use crate::calibrate::CalibrationOptions;
use crate::debug::rank::error;
use crate::failure::Failure;
use crate::given::InputOptions;
use crate::options::{PluginOptions, ShapeOptions, TypeOptions};
use crate::print::{Printer, number};
use crate::session::{Session, load_layers};
use crate::subject::build;
use kiln::{BuildOptions, DType, Engine, ExecutionContext, Model, Narrowing, Outputs, Tensor};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Report the error of each layer in narrow types against f32, and which layers keep f32 and why
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The ONNX model
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// The backend that runs it
    #[arg(long, value_name = "NAME", default_value = kiln::CPU)]
    backend: String,
    #[command(flatten)]
    types: TypeOptions,
    #[command(flatten)]
    calibration: CalibrationOptions,
    #[command(flatten)]
    inputs: InputOptions,
    #[command(flatten)]
    shapes: ShapeOptions,
    #[command(flatten)]
    plugins: PluginOptions,
}

/// A layer of the engine.
struct Layer {
    name: String,
    operators: String,
    /// The narrowest type that its operators read or make.
    dtype: DType,
    /// Relative error of what it makes; none where the network has no such tensor.
    error: Option<f64>,
    /// Reason why it keeps f32; none where it does not.
    why: Option<String>,
}

/// An engine after its run.
struct Side {
    engine: Engine,
    context: ExecutionContext,
    outputs: Outputs,
    notes: Vec<String>,
}

/// Builds and runs.
struct Runner<'a> {
    args: &'a Args,
    model: Model,
    session: Session,
    inputs: Vec<(String, Tensor)>,
    out: &'a Printer,
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    load_layers(&args.plugins)?;
    let Prepared { model, shapes, inputs } = Prepared::of(&args.model, &args.inputs, &args.shapes, out)?;
    let session = Session::with(&args.plugins, [args.backend.as_str()]);
    let mut wide = BuildOptions::default();
    (wide.backend, wide.shapes) = (Some(args.backend.clone()), shapes);
    wide.profiles = args.shapes.opt_profile.clone();
    let mut narrow = wide.clone();
    args.types.apply(&mut narrow.config);
    args.calibration.apply(&model, &mut narrow, &session.backends, out)?;
    (wide.config.fuse, wide.config.search) = (false, false);
    let runner = Runner { args, model, session, inputs, out };
    let mut wanted = runner.side(&wide)?;
    let mut found = runner.side(&narrow)?;
    let everywhere = match narrow.config.narrowing {
        Narrowing::Everywhere => None,
        _ => {
            narrow.config.narrowing = Narrowing::Everywhere;
            Some(types(&runner.side(&narrow)?))
        }
    };
    let layers = compared(&mut wanted, &mut found, everywhere.as_ref());
    let outputs: Vec<(String, f64)> = wanted
        .outputs
        .iter()
        .zip(found.outputs.iter())
        .map(|((name, w), (_, f))| (name.to_string(), error(&f.to_f64(), &w.to_f64())))
        .collect();
    report(&layers, &outputs, out);
    Ok(())
}

impl Runner<'_> {
    fn side(&self, options: &BuildOptions) -> Result<Side, Failure> {
        let built = build(self.model.clone(), options, &self.session, self.out)?;
        let builder = Engine::builder().backends(self.session.backends.clone());
        let engine = self.args.inputs.load.apply(builder).build(built.plan)?;
        let mut context = engine.create_context()?;
        context.set_observable(true);
        let inputs: Vec<(&str, Tensor)> = self.inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let outputs = context.run(&inputs)?;
        Ok(Side { engine, context, outputs, notes: built.report.notes })
    }
}

/// The narrowest type of each layer, by the network's name of it.
fn types(side: &Side) -> BTreeMap<String, DType> {
    let program = side.engine.program();
    let g = &program.graph;
    let mut all = BTreeMap::new();
    for n in program.steps.iter().flat_map(|s| &s.nodes).filter_map(|&n| g.get(n)) {
        let values = n.inputs.iter().flatten().chain(&n.outputs);
        let narrowest = values.map(|&v| g.ty(v).dtype).filter(|&t| computes(t)).min_by_key(|t| t.bits());
        for name in n.name.split(" + ").map(base) {
            let Some(t) = narrowest else { continue };
            let known = all.entry(name).or_insert(t);
            if t.bits() < known.bits() {
                *known = t;
            }
        }
    }
    all
}

/// Whether a type is one that data is computed in, rather than one of shapes, indices and sums.
fn computes(t: DType) -> bool {
    t.is_float() || t.bits() <= 8 && t != DType::Bool
}

fn compared(wanted: &mut Side, found: &mut Side, everywhere: Option<&BTreeMap<String, DType>>) -> Vec<Layer> {
    let own = types(found);
    let program = found.engine.program();
    let g = &program.graph;
    let border = program.border();
    let mut all = Vec::new();
    for step in &program.steps {
        let nodes: Vec<_> = step.nodes.iter().filter_map(|&n| g.get(n)).collect();
        let names: Vec<String> = nodes.iter().flat_map(|n| n.name.split(" + ").map(base)).collect();
        let Some(dtype) = names.iter().filter_map(|n| own.get(n)).copied().min_by_key(|t| t.bits()) else {
            continue;
        };
        let made = nodes.iter().flat_map(|n| &n.outputs).filter(|v| border.contains(v));
        let reals = made.filter(|&&v| g.ty(v).dtype.is_float()).map(|&v| &g.value(v).name);
        let mut errors = reals.filter_map(|name| {
            let (w, f) = (wanted.context.observe(&base(name)).ok()?, found.context.observe(name).ok()?);
            (w.shape() == f.shape()).then(|| error(&f.to_f64(), &w.to_f64()))
        });
        let error = errors.next();
        let ops: Vec<&str> = nodes.iter().map(|n| n.op.name()).collect();
        let why = (dtype == DType::F32).then(|| kept(&names, &found.notes, everywhere));
        all.push(Layer { name: step.name.clone(), operators: ops.join(" + "), dtype, error, why });
    }
    all
}

/// The reason why a layer keeps f32: what the build noted, else what a build that narrows all layers does.
fn kept(names: &[String], notes: &[String], everywhere: Option<&BTreeMap<String, DType>>) -> String {
    let noted = |name: &String| notes.iter().find(|note| note.contains(&format!("\"{name}\"")));
    if let Some(note) = names.iter().find_map(noted) {
        return note.clone();
    }
    let narrow = names.iter().filter_map(|n| everywhere?.get(n)).find(|t| t.bits() < 32);
    match narrow {
        Some(t) => format!("{t} is not faster here, casts included"),
        None => "its operator, the backend or unknown ranges leave it no permitted type".into(),
    }
}

fn report(layers: &[Layer], outputs: &[(String, f64)], out: &Printer) {
    let layer = |l: &Layer| -> Value {
        json!({
            "layer": l.name, "operators": l.operators, "type": l.dtype.name(), "error": l.error, "keeps_f32_because": l.why,
        })
    };
    let wide = layers.iter().filter(|l| l.why.is_some()).count();
    out.value(&json!({
        "layers": layers.iter().map(layer).collect::<Vec<_>>(),
        "outputs": outputs.iter().map(|(name, e)| json!({"name": name, "error": e})).collect::<Vec<_>>(),
        "layers_in_f32": wide,
    }));
    let row = |l: &Layer| {
        let error = l.error.map(number).unwrap_or_default();
        vec![
            l.name.clone(),
            l.operators.clone(),
            l.dtype.to_string(),
            error,
            l.why.clone().unwrap_or_default(),
        ]
    };
    out.table(
        &["layer", "operators", "type", "relative error", "keeps f32 because"],
        layers.iter().map(row).collect(),
    );
    for (name, e) in outputs {
        out.line(format!("output {name}: relative error {}", number(*e)));
    }
    out.line(format!("{wide} of {} layers keep f32", layers.len()));
}
