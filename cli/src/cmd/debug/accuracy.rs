//! `kiln debug accuracy`: the error of each layer in narrow types against the network in f32. Layers that keep f32 have the reason.

use super::precision::base;
use super::prepared::Prepared;
use crate::calibrate::CalibrationOptions;
use crate::debug::rank::error;
use crate::failure::Failure;
use crate::given::InputOptions;
use crate::load::LoadOptions;
use crate::options::{PluginOptions, ShapeOptions, TypeOptions};
use crate::print::{Printer, number};
use crate::session::{Session, load_layers};
use crate::subject::build;
use kiln::{BuildOptions, Built, DType, Engine, ExecutionContext, Model, Narrowing, Outputs, Tensor};
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

/// Builds a model in narrow types and in f32, and runs both on the same inputs.
pub struct Runner<'a> {
    /// The model.
    pub model: Model,
    /// The backends.
    pub session: &'a Session,
    /// Options for loading engines.
    pub load: LoadOptions,
    /// All inputs by name.
    pub inputs: Vec<(String, Tensor)>,
    /// The printer of notes.
    pub out: &'a Printer,
}

/// Errors by layer and by output.
pub struct Accuracy {
    layers: Vec<Layer>,
    outputs: Vec<(String, f64)>,
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    load_layers(&args.plugins)?;
    let Prepared { model, shapes, inputs } = Prepared::of(&args.model, &args.inputs, &args.shapes, out)?;
    let session = Session::with(&args.plugins, [args.backend.as_str()]);
    let mut narrow = BuildOptions::default();
    (narrow.backend, narrow.shapes) = (Some(args.backend.clone()), shapes);
    narrow.profiles = args.shapes.opt_profile.clone();
    args.types.apply(&mut narrow.config);
    args.calibration.apply(&model, &mut narrow, &session.backends, out)?;
    let runner = Runner { model, session: &session, load: args.inputs.load.clone(), inputs, out };
    let built = runner.built(&narrow)?;
    let found = runner.accuracy(built, &narrow)?;
    out.value(&found.to_json());
    found.print(out);
    Ok(())
}

impl Runner<'_> {
    /// Builds the model.
    fn built(&self, options: &BuildOptions) -> Result<Built, Failure> {
        build(self.model.clone(), options, self.session, self.out)
    }

    /// Compares what was built by these options with the network in f32.
    pub fn accuracy(&self, built: Built, options: &BuildOptions) -> Result<Accuracy, Failure> {
        let mut wide = BuildOptions::default();
        wide.backend = options.backend.clone();
        (wide.shapes, wide.profiles) = (options.shapes.clone(), options.profiles.clone());
        (wide.config.fuse, wide.config.search) = (false, false);
        let mut wanted = self.side(self.built(&wide)?)?;
        let mut found = self.side(built)?;
        let everywhere = match options.config.narrowing {
            Narrowing::Everywhere => None,
            _ => {
                let mut forced = options.clone();
                (forced.config.narrowing, forced.config.monitor) = (Narrowing::Everywhere, None);
                Some(types(&self.side(self.built(&forced)?)?))
            }
        };
        let layers = compared(&mut wanted, &mut found, everywhere.as_ref());
        let both = wanted.outputs.iter().zip(found.outputs.iter());
        let outputs =
            both.map(|((name, w), (_, f))| (name.clone(), error(&f.to_f64(), &w.to_f64()))).collect();
        Ok(Accuracy { layers, outputs })
    }

    fn side(&self, built: Built) -> Result<Side, Failure> {
        let builder = Engine::builder().backends(self.session.backends.clone());
        let engine = self.load.apply(builder).build(built.plan)?;
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

impl Accuracy {
    /// The errors for programs.
    pub fn to_json(&self) -> Value {
        let layer = |l: &Layer| -> Value {
            json!({
                "layer": l.name, "operators": l.operators, "type": l.dtype.name(), "error": l.error, "keeps_f32_because": l.why,
            })
        };
        json!({
            "layers": self.layers.iter().map(layer).collect::<Vec<_>>(),
            "outputs": self.outputs.iter().map(|(name, e)| json!({"name": name, "error": e})).collect::<Vec<_>>(),
            "layers_in_f32": self.wide(),
        })
    }

    /// Layers that keep f32.
    fn wide(&self) -> usize {
        self.layers.iter().filter(|l| l.why.is_some()).count()
    }

    /// Prints the errors as a table.
    pub fn print(&self, out: &Printer) {
        let row = |l: &Layer| {
            let error = l.error.map(number).unwrap_or_default();
            let why = l.why.clone().unwrap_or_default();
            vec![l.name.clone(), l.operators.clone(), l.dtype.to_string(), error, why]
        };
        let head = ["layer", "operators", "type", "relative error", "keeps f32 because"];
        out.table(&head, self.layers.iter().map(row).collect());
        for (name, e) in &self.outputs {
            out.line(format!("output {name}: relative error {}", number(*e)));
        }
        out.line(format!("{} of {} layers keep f32", self.wide(), self.layers.len()));
    }
}
