//! The report of a build as JSON, with the keys of `kiln build --json`.

use kiln::BuildReport;
use kiln::report::{Considered, StepReport};
use kiln::selection::TensorLayout;
use kiln_c_core::json;
use serde_json::{Value, json as object};

/// The report for programs.
pub(crate) fn report(r: &BuildReport) -> Value {
    let tensor = |t: &TensorLayout| object!({"type": t.dtype.name(), "dims": t.dims, "strides": t.strides});
    let step = |s: &StepReport| {
        object!({
            "name": s.name, "operators": s.ops, "backend": r.backend, "tactic": s.tactic, "view": s.view, "ns": s.ns,
            "candidates": s.candidates, "cache_key": s.key, "note": s.note, "workspace": s.workspace,
            "deterministic": s.deterministic,
            "inputs": s.inputs.iter().map(tensor).collect::<Vec<_>>(),
            "outputs": s.outputs.iter().map(tensor).collect::<Vec<_>>(),
        })
    };
    let considered = |c: &Considered| {
        object!({
            "rewrite": c.rewrite, "layer": c.layer, "sites": c.sites, "taken": c.taken, "why": c.why,
            "without_ns": c.without_ns, "with_ns": c.with_ns,
        })
    };
    object!({
        "backend": r.backend,
        "device": r.target.device,
        "arch": r.target.arch,
        "fell_back": r.fell_back.as_ref().map(|(b, why)| object!({"from": b, "reason": why})),
        "kernels": r.steps.iter().filter(|s| !s.view).count(),
        "layers": r.steps.iter().map(step).collect::<Vec<_>>(),
        "passes": r.passes.iter().map(|p| object!({"pass": p.pass, "changes": p.changes})).collect::<Vec<_>>(),
        "considered": r.considered.iter().map(considered).collect::<Vec<_>>(),
        "tactics_timed": r.timed,
        "seconds": {
            "total": r.spent.total.as_secs_f64(), "compiling": r.spent.compiling.as_secs_f64(),
            "timing": r.spent.timing.as_secs_f64(),
        },
        "assumed_shapes": r.assumed.iter().map(|(n, s)| object!({"input": n, "shape": s})).collect::<Vec<_>>(),
        "host_layers": json::host_layers(&r.host_layers),
        "notes": r.notes,
    })
}
