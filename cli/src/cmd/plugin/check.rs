//! `kiln plugin check`: a library by random inputs, all its forms against the reference form.

use super::apart;
use super::draw::{Case, draw, sizes};
use super::list::forms;
use crate::failure::Failure;
use crate::options::{PluginLevel, PluginOptions};
use crate::print::Printer;
use crate::session::Session;
use kiln::plugin::{Arrangement, LayerRecord, LayerRun, Packings, Policy, aliases, load_layers, workspace};
use kiln::{Backend, Target};
use kiln_backend::compare::{Latitude, check};
use kiln_backend::{Program, Shapes, host_layer};
use kiln_ir::problem::Rng;
use kiln_ir::{Bytes, Fact, Op, Tensor};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

/// Attempts to draw a case that a layer takes, for each case that is wanted.
const ATTEMPTS: u32 = 200;
/// Runs of one context on a device, whose results are equal where forms keep a state.
const RUNS: usize = 3;
/// Threads that run one case at a time.
const THREADS: usize = 4;

/// Check a library of custom layers: load it, draw inputs and fields, compare all forms with the reference form
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The library
    library: PathBuf,
    /// Number of inputs to draw for each layer
    #[arg(long, value_name = "N", default_value_t = 20)]
    cases: u32,
    /// Seed of the inputs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The layer to check, by name; default: all of the library
    #[arg(long, value_name = "NAME")]
    layer: Option<String>,
    /// Shapes of the inputs, which are drawn else: 3x4,4
    #[arg(long, value_name = "SHAPES", value_parser = shapes)]
    shapes: Option<InputShapes>,
    #[command(flatten)]
    plugins: PluginOptions,
}

/// Shapes of all inputs.
type InputShapes = Arc<Vec<Vec<usize>>>;

fn shapes(text: &str) -> Result<InputShapes, String> {
    let dims = |s: &str| match s {
        "" | "scalar" => Ok(Vec::new()),
        s => s.split('x').map(|n| n.parse().map_err(|_| format!("\"{n}\" is no size"))).collect(),
    };
    text.split(',').map(dims).collect::<Result<_, _>>().map(Arc::new)
}

/// Outcome of one check of a layer.
struct Row {
    layer: String,
    what: String,
    passed: usize,
    failure: Option<String>,
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    if args.plugins.plugins == PluginLevel::Off {
        return Err(Failure::Input(
            "plug-ins are switched off (--plugins off); a check has to load one".into(),
        ));
    }
    if let Some(status) = apart::run()? {
        return match apart::ended(status) {
            Some(failure) => Err(failure),
            None if status.success() => Ok(()),
            // That process has said why.
            None => std::process::exit(status.code().unwrap_or(1)),
        };
    }
    let policy = Policy { level: crate::session::discover(&args.plugins).policy.level, ..Policy::default() };
    let layers = load_layers(&args.library, &policy).map_err(|e| Failure::Input(e.chain()))?;
    let devices = devices(&args.plugins);
    let mut rows = Vec::new();
    for r in layers.iter().filter(|r| args.layer.as_ref().is_none_or(|n| *n == r.name.name)) {
        check_layer(r, args, &devices, &mut rows);
    }
    if rows.is_empty() {
        let names: Vec<&str> = layers.iter().map(|r| r.name.name.as_str()).collect();
        return Err(Failure::Input(format!("the library has no such layer, only {}", names.join(", "))));
    }
    out.value(&json!({
        "library": args.library,
        "layers": layers.iter().map(|r| json!({"layer": r.name.to_string(), "forms": forms(r)})).collect::<Vec<_>>(),
        "checks": rows.iter().map(|r| json!({
            "layer": r.layer, "check": r.what, "passed": r.passed, "failure": r.failure,
        })).collect::<Vec<_>>(),
    }));
    let cells = |r: &Row| {
        let outcome = r.failure.clone().unwrap_or_else(|| "ok".into());
        vec![r.layer.clone(), r.what.clone(), r.passed.to_string(), outcome]
    };
    out.table(&["layer", "check", "cases", "outcome"], rows.iter().map(cells).collect());
    match rows.iter().filter(|r| r.failure.is_some()).count() {
        0 => Ok(()),
        n => Err(Failure::Mismatch(format!("{n} of {} checks failed", rows.len()))),
    }
}

/// A device that kernels run on.
type Device = (Arc<dyn Backend>, Target);

/// Backends beside the reference that have a device here.
fn devices(options: &PluginOptions) -> Vec<Device> {
    let session = Session::all(options);
    let names: Vec<String> = session
        .backends
        .names()
        .filter(|n| ![kiln::CPU, kiln::REFERENCE].contains(n))
        .map(str::to_owned)
        .collect();
    let open = |n: &String| {
        let b = session.backends.get(n).ok()?;
        let target = b.targets().ok()?.into_iter().next()?;
        Some((b, target))
    };
    names.iter().filter_map(open).collect()
}

/// Counts the cases of one check up to the first failure.
struct Tally<'a> {
    rows: &'a mut Vec<Row>,
    layer: String,
}

impl Tally<'_> {
    fn put(&mut self, what: &str, outcome: Result<(), String>) {
        let at = self.rows.iter().position(|r| r.layer == self.layer && r.what == what);
        let at = at.unwrap_or_else(|| {
            let what = what.to_owned();
            self.rows.push(Row { layer: self.layer.clone(), what, passed: 0, failure: None });
            self.rows.len() - 1
        });
        let row = &mut self.rows[at];
        match outcome {
            Ok(()) => row.passed += usize::from(row.failure.is_none()),
            Err(e) => _ = row.failure.get_or_insert(e),
        }
    }
}

fn check_layer(r: &LayerRecord, args: &Args, devices: &[Device], rows: &mut Vec<Row>) {
    let mut tally = Tally { rows, layer: r.name.to_string().replace('"', "") };
    let mut rng = Rng::new(args.seed);
    let given = args.shapes.as_deref().map_or(&[][..], Vec::as_slice);
    let pool = sizes(&r.shapes.as_ref().map(|s| format!("{s:?}").replace("Int(", " ")).unwrap_or_default());
    let (mut taken, mut refusal) = (0, String::new());
    for _ in 0..args.cases.saturating_mul(ATTEMPTS) {
        if taken == args.cases {
            break;
        }
        let found = draw(r, &mut rng, given, &pool).and_then(|c| {
            let outputs = c.op.eval(&options(&c.inputs)).map_err(|e| e.to_string())?;
            Ok((c, outputs))
        });
        let (case, outputs) = match found {
            Ok(found) => found,
            Err(e) if is_defect(&e) => {
                tally.put("reference form", Err(e));
                continue;
            }
            Err(e) => {
                refusal = e;
                continue;
            }
        };
        taken += 1;
        let of = |e: String| format!("{}: {e}", describe(&case));
        tally.put("reference form", Ok(()));
        tally.put("the same again", again(&case, &outputs).map_err(of));
        tally.put("strided views", padded(r, &case, &outputs).map_err(of));
        tally.put("threads", threads(&case, &outputs).map_err(of));
        tally.put("serialization", round_trip(&case.op).map_err(of));
        if let Some(e) = &case.expression {
            let checked =
                check(e, &options(&case.inputs), &outputs, Latitude { flush: true, ..Latitude::default() });
            tally.put("expression", checked.map_err(of));
        }
        for (backend, target) in devices {
            for (tactic, outcome) in kernels(&case, backend, target) {
                tally.put(&format!("{}: {tactic}", backend.name()), outcome.map_err(of));
            }
        }
    }
    if taken == 0 {
        let why = format!("no inputs were taken; the last refusal: {refusal}; give --shapes");
        tally.put("reference form", Err(why));
    }
}

/// Whether an error is a defect of the layer, not a refusal of inputs.
fn is_defect(e: &str) -> bool {
    ["panicked", "internal error", " made "].iter().any(|s| e.contains(s))
}

fn options(inputs: &[Tensor]) -> Vec<Option<Tensor>> {
    inputs.iter().cloned().map(Some).collect()
}

fn describe(case: &Case) -> String {
    let types: Vec<String> = case.inputs.iter().map(|t| t.ty().to_string()).collect();
    let fields: Vec<String> = case.fields.iter().map(|(n, v)| format!("{n} = {v}")).collect();
    format!(
        "inputs {} with {}",
        types.join(", "),
        if fields.is_empty() { "no fields".into() } else { fields.join(", ") }
    )
}

fn same(found: &[Tensor], wanted: &[Tensor]) -> Result<(), String> {
    let differs =
        found.iter().zip(wanted).position(|(a, b)| a.shape() != b.shape() || a.bytes() != b.bytes());
    match differs {
        Some(i) => Err(format!("output {i} has other bits")),
        None => Ok(()),
    }
}

fn again(case: &Case, wanted: &[Tensor]) -> Result<(), String> {
    same(&case.op.eval(&options(&case.inputs)).map_err(|e| e.to_string())?, wanted)
}

fn padded(r: &LayerRecord, case: &Case, wanted: &[Tensor]) -> Result<(), String> {
    let text = |e: kiln::OpError| e.to_string();
    let facts: Vec<Fact> = case.inputs.iter().cloned().map(Fact::constant).collect();
    let given: Vec<Option<Fact>> = facts.iter().cloned().map(Some).collect();
    let packings = Packings::of_attrs(case.op.attrs()).map_err(text)?;
    let made = case.op.infer(&given, "check").map_err(text)?.into_iter().map(|f| f.ty).collect::<Vec<_>>();
    let outputs = packings.linear_types(&made).map_err(text)?;
    let run = LayerRun {
        fields: &case.fields,
        workspace: workspace(case.op.attrs(), &case.fields, facts.iter().collect()).map_err(text)?,
        aliases: &aliases(case.op.attrs()).map_err(text)?,
        inputs: &case.linear,
        outputs: &outputs,
        arrangement: Arrangement::Padded,
    };
    let found = r.functions.run(&run).map_err(text)?;
    same(&packings.pack_outputs(&found).map_err(text)?, wanted)
}

fn threads(case: &Case, wanted: &[Tensor]) -> Result<(), String> {
    std::thread::scope(|s| {
        let all: Vec<_> = (0..THREADS).map(|_| s.spawn(|| again(case, wanted))).collect();
        all.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })
}

/// The operator as plans hold it.
fn round_trip(op: &Op) -> Result<(), String> {
    let bytes = minicbor::to_vec(op).map_err(|e| e.to_string())?;
    let read: Op = minicbor::decode(&bytes).map_err(|e| e.to_string())?;
    if read == *op { Ok(()) } else { Err("fields are not what was written".into()) }
}

/// Runs every kernel of the layer on a device; expressions too.
fn kernels(case: &Case, backend: &Arc<dyn Backend>, target: &Target) -> Vec<(String, Result<(), String>)> {
    let mut all = Vec::new();
    let op = case.expression.as_ref().unwrap_or(&case.op);
    let Ok((program, inputs)) = Program::single(op, &options(&case.inputs)) else { return all };
    let found = program.steps.first().and_then(|s| program.region(s).ok());
    let tactics = found.map(|region| (backend.tactics(&region, target), region));
    let Some((tactics, region)) = tactics else { return all };
    let tactics = match tactics {
        Ok(t) => t,
        Err(e) => return vec![("kernels".into(), Err(e.to_string()))],
    };
    for tactic in tactics.into_iter().filter(|t| t.name != host_layer::ON_HOST) {
        let run = || -> Result<(), String> {
            let text = |e: kiln::BackendError| e.to_string();
            let mut program = program.clone();
            program.steps[0].blob = Bytes::from(backend.compile(&region, &tactic, target).map_err(text)?);
            program.steps[0].tactic = tactic.clone();
            let program = Arc::new(program);
            let shapes: Arc<Shapes> = Arc::new(program.shapes(&inputs).map_err(text)?);
            let device = backend.open(target).map_err(text)?;
            let mut context = device.load(program).and_then(|e| e.context()).map_err(text)?;
            let latitude = Latitude { flush: backend.name() == "wgpu", ..Latitude::default() };
            for _ in 0..RUNS {
                context.enqueue(&inputs, &shapes).map_err(text)?;
                let found = context.outputs().map_err(text)?;
                check(op, &options(&case.inputs), &found, latitude)?;
            }
            Ok(())
        };
        all.push((tactic.id(), run()));
    }
    all
}
