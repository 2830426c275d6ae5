//! `kiln debug precision`: the least set of layers to keep in f32 so that the others may be narrow.

use super::prepared::Prepared;
use crate::debug::checker::CheckOptions;
use crate::debug::rank::{Ranked, error, least, sort};
use crate::failure::Failure;
use crate::given::InputOptions;
use crate::options::{PluginOptions, ShapeOptions, ToleranceOptions};
use crate::print::{Printer, number};
use crate::session::{Session, load_layers};
use crate::subject::build;
use clap::ValueEnum;
use kiln::compare::Diff;
use kiln::{
    BuildConfig, BuildOptions, Constraints, DType, Engine, LayerTypes, Model, Narrowing, Outputs, Tensor,
};
use kiln::{ExecutionContext, ShapeRequest};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// Layers that are tried to be narrow again one by one at most.
const SINGLES: usize = 24;

/// Find the least set of layers to keep in f32 so that a tolerance, or a check, holds
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The ONNX model
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// The backend that runs it
    #[arg(long, value_name = "NAME", default_value = kiln::CPU)]
    backend: String,
    /// The type of all other layers
    #[arg(long, value_enum, default_value_t = Narrow::Fp16)]
    narrow: Narrow,
    /// The file that engines are written to for --check
    #[arg(long, value_name = "FILE", default_value = "kiln_debug.kiln")]
    artifact: PathBuf,
    #[command(flatten)]
    inputs: InputOptions,
    #[command(flatten)]
    tolerance: ToleranceOptions,
    #[command(flatten)]
    check: CheckOptions,
    #[command(flatten)]
    shapes: ShapeOptions,
    #[command(flatten)]
    plugins: PluginOptions,
}

/// A narrow type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Narrow {
    Fp16,
    Bf16,
}

/// All that builds share.
struct Search<'a> {
    args: &'a Args,
    model: Model,
    session: Session,
    shapes: ShapeRequest,
    inputs: Vec<(String, Tensor)>,
    /// Outputs of the wide engine.
    wanted: Outputs,
    builds: usize,
    out: &'a Printer,
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    load_layers(&args.plugins)?;
    let Prepared { model, shapes, inputs } = Prepared::of(&args.model, &args.inputs, &args.shapes, out)?;
    let session = Session::with(&args.plugins, [args.backend.as_str()]);
    let mut search =
        Search { args, model, session, shapes, inputs, wanted: Outputs::default(), builds: 0, out };
    let (wide, values) = search.observed(false)?;
    search.wanted = wide;
    let (_, narrow) = search.observed(true)?;
    let ranked = ranked(&narrow, &values);
    let found = least(ranked.len(), |n| search.is_good(&ranked[..n].iter().collect::<Vec<_>>()))?;
    let Some(n) = found else {
        return Err(Failure::Mismatch(format!(
            "even with all {} layers in f32 the outputs are not as wanted; is the tolerance below what one run differs from the next?",
            ranked.len()
        )));
    };
    let mut kept: Vec<&Ranked> = ranked[..n].iter().collect();
    search.singles(&mut kept)?;
    drop(std::fs::remove_file(&args.artifact));
    report(&ranked, &kept, search.builds, out);
    Ok(())
}

fn report(ranked: &[Ranked], kept: &[&Ranked], builds: usize, out: &Printer) {
    let options: Vec<String> = kept.iter().map(|r| format!("{}:fp32", r.layer)).collect();
    let is_kept = |r: &Ranked| kept.iter().any(|k| k.layer == r.layer);
    let row = |r: &Ranked| json!({"layer": r.layer, "error": r.error, "added": r.added, "keep": is_kept(r)});
    out.value(&json!({
        "builds": builds,
        "keep": kept.iter().map(|r| &r.layer).collect::<Vec<_>>(),
        "layer_precisions": options.join(","),
        "layers": ranked.iter().map(row).collect::<Vec<_>>(),
    }));
    let row = |r: &Ranked| {
        vec![
            r.layer.clone(),
            number(r.error),
            number(r.added),
            if is_kept(r) { "f32" } else { "narrow" }.to_owned(),
        ]
    };
    out.table(&["layer", "relative error", "added by it", "type"], ranked.iter().map(row).collect());
    out.line(format!("{} of {} layers stay in f32, found by {builds} builds", kept.len(), ranked.len()));
    if !kept.is_empty() {
        out.line(format!("--layer-precisions {} --precision-constraints obey", options.join(",")));
    }
}

/// Values of layers by the layer's name, with the names of the layers that it reads.
type Values = Vec<(String, Vec<String>, Vec<f64>)>;

impl Search<'_> {
    fn options(&self, narrow: bool, kept: &[&Ranked]) -> BuildOptions {
        let ty = match self.args.narrow {
            Narrow::Fp16 => DType::F16,
            Narrow::Bf16 => DType::BF16,
        };
        let wide = |r: &&Ranked| LayerTypes {
            layers: r.layer.clone(),
            precision: Some(DType::F32),
            ..LayerTypes::default()
        };
        let mut options = BuildOptions::default();
        options.config = BuildConfig {
            reduced: if narrow { vec![ty] } else { Vec::new() },
            narrowing: Narrowing::Everywhere,
            layer_types: kept.iter().map(wide).collect(),
            constraints: Constraints::Obey,
            estimates: true,
            ..BuildConfig::default()
        };
        options.backend = Some(self.args.backend.clone());
        options.shapes = self.shapes.clone();
        options.profiles = self.args.shapes.opt_profile.clone();
        options
    }

    fn engine(&mut self, options: &BuildOptions) -> Result<(Engine, kiln::Plan), Failure> {
        self.builds += 1;
        let built = build(self.model.clone(), options, &self.session, self.out)?;
        let builder = Engine::builder().backends(self.session.backends.clone());
        let engine = self.args.inputs.load.apply(builder).build(built.plan.clone())?;
        Ok((engine, built.plan))
    }

    fn run(&self, context: &mut ExecutionContext) -> Result<Outputs, Failure> {
        let inputs: Vec<(&str, Tensor)> = self.inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        context.set_profile(self.args.inputs.use_profile)?;
        Ok(context.run(&inputs)?)
    }

    /// Outputs, and the values between layers of an engine with a kernel for each layer.
    fn observed(&mut self, narrow: bool) -> Result<(Outputs, Values), Failure> {
        let mut options = self.options(narrow, &[]);
        (options.config.fuse, options.config.search) = (false, false);
        let (engine, _) = self.engine(&options)?;
        let mut context = engine.create_context()?;
        context.set_observable(true);
        let outputs = self.run(&mut context)?;
        let program = engine.program();
        let g = &program.graph;
        let mut values = Values::new();
        for node in program.steps.iter().flat_map(|s| &s.nodes).filter_map(|&n| g.get(n)) {
            let Some(&v) = node.outputs.first() else { continue };
            let Ok(t) = context.observe(&g.value(v).name) else { continue };
            if !t.dtype().is_float() {
                continue;
            }
            let from =
                node.inputs.iter().flatten().filter_map(|&i| g.producer(i)).filter_map(|(n, _)| g.get(n));
            values.push((base(&node.name), from.map(|n| base(&n.name)).collect(), t.to_f64()));
        }
        Ok((outputs, values))
    }

    /// Whether the outputs are as wanted, or the check finds them good, with these layers in f32.
    fn is_good(&mut self, kept: &[&Ranked]) -> Result<bool, Failure> {
        let options = self.options(true, kept);
        let (engine, plan) = self.engine(&options)?;
        if !self.args.check.check.is_empty() {
            plan.write_into(kiln::Plan::replacement(&self.args.artifact)?)?;
            return self.args.check.is_good();
        }
        let found = self.run(&mut engine.create_context()?)?;
        let tolerance = &self.args.tolerance.tolerance();
        let mut pairs = self.wanted.iter().zip(found.iter());
        Ok(pairs.all(|((name, w), (_, f))| Diff::of(name, f, w, tolerance).ok()))
    }

    /// Takes single layers out of the set again, those that add least first, where the rest is good without them.
    fn singles(&mut self, kept: &mut Vec<&Ranked>) -> Result<(), Failure> {
        if kept.len() > SINGLES {
            self.out.note(format!("more than {SINGLES} layers stay in f32: not each of them is tried alone"));
            return Ok(());
        }
        // The last one is needed, or fewer would do.
        for i in (0..kept.len().saturating_sub(1)).rev() {
            let mut without = kept.clone();
            without.remove(i);
            if self.is_good(&without)? {
                *kept = without;
            }
        }
        Ok(())
    }
}

/// The network's name of a layer, without what a pass appended.
pub(super) fn base(name: &str) -> String {
    let ends = [".f16", ".bf16", ".f32"];
    ends.iter().find_map(|e| name.strip_suffix(e)).unwrap_or(name).to_owned()
}

/// Layers of both engines by what each adds, the greatest first.
fn ranked(narrow: &Values, wide: &Values) -> Vec<Ranked> {
    let wanted: HashMap<&str, &Vec<f64>> = wide.iter().map(|(n, _, v)| (n.as_str(), v)).collect();
    let mut errors: HashMap<&str, f64> = HashMap::new();
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for (name, from, found) in narrow {
        let Some(w) = wanted.get(name.as_str()).filter(|w| w.len() == found.len()) else { continue };
        let e = error(found, w);
        let before = from.iter().filter_map(|f| errors.get(f.as_str())).copied().fold(0.0, f64::max);
        errors.insert(name, e);
        if seen.insert(name.clone()) {
            let added = if e.is_finite() {
                (e - before).max(0.0)
            } else if before.is_finite() {
                e
            } else {
                0.0
            };
            all.push(Ranked { layer: name.clone(), error: e, added });
        }
    }
    sort(&mut all);
    all
}
