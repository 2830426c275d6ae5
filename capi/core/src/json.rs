//! Values of the engine as JSON, with the keys of the command line's `--json`.

use kiln::plugin::Found;
use kiln::{BackendError, HostLayer, IoMode, IoTensor, PlanHeader, Profile, Target};
use serde_json::{Value, json};

/// A device.
pub fn target(t: &Target) -> Value {
    json!({
        "backend": t.backend, "version": t.version, "arch": t.arch, "device": t.device, "driver": t.driver,
        "features": t.features, "numbers": t.numbers, "fingerprint": t.fingerprint(),
        "memory": {
            "alignment": t.memory.alignment, "max_binding": t.memory.max_binding,
            "in_place": t.memory.in_place, "total": t.memory.total,
        },
    })
}

/// A backend with its devices.
pub fn backend(name: &str, targets: &Result<Vec<Target>, BackendError>) -> Value {
    let devices: Vec<Value> = targets.iter().flatten().map(target).collect();
    json!({"name": name, "devices": devices, "error": targets.as_ref().err().map(|e| e.to_string())})
}

/// A library that was found.
pub fn found(f: &Found) -> Value {
    let plugin = f.outcome.as_ref().ok().map(|i| {
        json!({"name": i.name, "vendor": i.vendor, "version": i.version, "build_id": i.build_id,
            "abi": format!("{}.{}", i.abi.0, i.abi.1)})
    });
    let refused = f.outcome.as_ref().err().map(|e| e.chain());
    json!({"path": f.path.display().to_string(), "plugin": plugin, "refused": refused})
}

/// An input or output.
pub fn io(t: &IoTensor) -> Value {
    json!({
        "name": t.name, "mode": if t.mode == IoMode::Input { "input" } else { "output" }, "type": t.dtype.name(),
        "dims": t.dims_or_minus_one(), "dims_text": t.dims_text(), "format": t.format().name(),
        "format_description": t.format_description(), "shape_input": t.is_shape_input,
    })
}

/// A profile: ranges of shapes and of elements of shape inputs.
pub fn profile(p: &Profile) -> Value {
    let range = |r: &kiln::Range| json!({"min": r.min, "opt": r.opt, "max": r.max});
    let all = |m: &std::collections::BTreeMap<String, kiln::Range>| {
        m.iter().map(|(n, r)| (n.clone(), range(r))).collect::<serde_json::Map<_, _>>()
    };
    json!({"shapes": all(&p.shapes), "values": all(&p.values)})
}

/// The header of a plan.
pub fn header(h: &PlanHeader) -> Value {
    let plugin = |r: &kiln::Requirement| {
        json!({"name": r.name, "version": r.version, "digest": r.digest, "layers": r.layers, "called": r.called,
            "embedded": r.embedded})
    };
    json!({
        "name": h.name, "target": target(&h.target), "io": h.io.iter().map(io).collect::<Vec<_>>(),
        "profiles": h.profiles.iter().map(profile).collect::<Vec<_>>(),
        "plugins": h.plugins.iter().map(plugin).collect::<Vec<_>>(),
        "refittable": h.refittable, "identical": h.identical, "version_compatible": h.version_compatible,
        "absent": h.absent.iter().map(|a| &a.name).collect::<Vec<_>>(), "context_memory": h.context_memory,
    })
}

/// Layers at which the host waits.
pub fn host_layers(layers: &[HostLayer]) -> Value {
    layers.iter().map(|l| json!({"name": l.name, "why": l.why, "advice": l.advice})).collect()
}
