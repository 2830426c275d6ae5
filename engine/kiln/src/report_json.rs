//! The report of a build for programs.

use crate::BuildReport;
use kiln_builder::{AlternativeReport, Considered, StepReport, TensorLayout};
use kiln_runtime::HostLayer;
use serde_json::{Value, json};

impl BuildReport {
    /// Number of kernels that a run launches: views launch none.
    pub fn kernels(&self) -> usize {
        self.steps.iter().filter(|s| !s.view).count()
    }

    /// The report as JSON, with the keys of `kiln build --json`.
    pub fn to_json(&self) -> Value {
        json!({
            "backend": self.backend,
            "device": self.target.device,
            "arch": self.target.arch,
            "fell_back": self.fell_back.as_ref().map(|(b, why)| json!({"from": b, "reason": why})),
            "kernels": self.kernels(),
            "layers": all(&self.steps, |s| step(&self.backend, s)),
            "passes": all(&self.passes, |p| json!({"pass": p.pass, "changes": p.changes})),
            "considered": all(&self.considered, considered),
            "tactics_timed": self.timed,
            "seconds": {
                "total": self.spent.total.as_secs_f64(), "compiling": self.spent.compiling.as_secs_f64(),
                "timing": self.spent.timing.as_secs_f64(),
            },
            "assumed_shapes": all(&self.assumed, |(input, shape)| json!({"input": input, "shape": shape})),
            "host_layers": all(&self.host_layers, host_layer),
            "notes": self.notes,
        })
    }
}

fn all<T>(list: &[T], json: impl Fn(&T) -> Value) -> Value {
    list.iter().map(json).collect()
}

fn step(backend: &str, s: &StepReport) -> Value {
    let tensor = |t: &TensorLayout| json!({"type": t.dtype.name(), "dims": t.dims, "strides": t.strides});
    json!({
        "name": s.name, "operators": s.ops, "backend": backend, "tactic": if s.view { "view" } else { &s.tactic },
        "view": s.view, "ns": s.ns, "candidates": s.candidates, "cache_key": s.key, "note": s.note,
        "workspace": s.workspace, "deterministic": s.deterministic, "inputs": all(&s.inputs, tensor),
        "outputs": all(&s.outputs, tensor), "by_shape": all(&s.alternatives, alternative),
    })
}

fn alternative(a: &AlternativeReport) -> Value {
    json!({"shapes": a.shapes, "tactic": a.tactic, "ns": a.ns, "own_ns": a.own_ns, "cache_keys": a.keys})
}

fn considered(c: &Considered) -> Value {
    json!({
        "rewrite": c.rewrite, "layer": c.layer, "sites": c.sites, "taken": c.taken, "why": c.why,
        "without_ns": c.without_ns, "with_ns": c.with_ns,
    })
}

fn host_layer(l: &HostLayer) -> Value {
    json!({"name": l.name, "why": l.why, "advice": l.advice})
}
