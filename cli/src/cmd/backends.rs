//! `kiln backends`: what was found, with devices, and what was refused and why.

use crate::failure::Failure;
use crate::options::PluginOptions;
use crate::print::{Printer, bytes};
use crate::session::Session;
use kiln::is_linked;
use kiln::plugin::Found;
use kiln::{BackendError, Capability, DType, Target};
use serde_json::{Map, Value, json};

/// List backends, their devices, and plug-ins that were refused
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also list, for each device and operator, the element types that it runs: fast, emulated or none
    #[arg(long)]
    types: bool,
    #[command(flatten)]
    plugins: PluginOptions,
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    let session = Session::all(&args.plugins);
    let mut all = Vec::new();
    for name in session.backends.names() {
        let targets = session.backends.get(name).map_err(kiln::Error::from)?.targets();
        all.push((name.to_owned(), source(name, &session.found), targets));
    }
    let mut types = Vec::new();
    for (name, _, targets) in all.iter().filter(|_| args.types) {
        let backend = session.backends.get(name).map_err(kiln::Error::from)?;
        types.extend(
            targets
                .iter()
                .flatten()
                .map(|t| (name, t.device.clone(), kiln::capabilities(backend.as_ref(), t))),
        );
    }
    out.value(&json!({
        "best": kiln::best(&session.backends).ok(),
        "backends": all.iter().map(|(n, s, t)| backend_json(n, s, t)).collect::<Vec<_>>(),
        "types": args.types.then(|| types.iter().map(|(n, d, found)| types_json(n, d, found)).collect::<Vec<_>>()),
        "plugins": session.found.iter().map(found_json).collect::<Vec<_>>(),
    }));
    let rows = all.iter().flat_map(|(n, s, t)| rows(n, s, t)).collect();
    out.table(&["backend", "#", "device", "UUID", "arch", "driver", "memory", "features", "from"], rows);
    for (name, device, found) in &types {
        out.line(format!("element types of {name} on {device}:"));
        let mut header = vec!["operator"];
        header.extend(DType::ALL.iter().map(|t| t.name()));
        out.table(&header, found.iter().map(|(operator, types)| type_row(operator, types)).collect());
    }
    let refused = session.found.iter().filter_map(|f| Some(vec![f.path.display().to_string(), reason(f)?]));
    out.table(&["refused", "because"], refused.collect());
    if let Ok(best) = kiln::best(&session.backends) {
        out.line(format!("builds are for {best} unless --backend says another"));
    }
    Ok(())
}

/// Types of an operator with what the device offers for each.
type Types = [(DType, Capability)];

/// A row of the table of types: a cell is empty where the operator itself has no such type.
fn type_row(operator: &str, types: &Types) -> Vec<String> {
    let of = |t: DType| types.iter().find(|(found, _)| *found == t).map_or("", |(_, c)| c.name());
    [operator].into_iter().chain(DType::ALL.into_iter().map(of)).map(str::to_owned).collect()
}

fn types_json(backend: &str, device: &str, found: &[(&str, Vec<(DType, Capability)>)]) -> Value {
    let of = |types: &Types| {
        types.iter().map(|(t, c)| (t.name().to_owned(), json!(c.name()))).collect::<Map<_, _>>()
    };
    let operators: Map<String, Value> =
        found.iter().map(|(operator, types)| ((*operator).to_owned(), Value::Object(of(types)))).collect();
    json!({"backend": backend, "device": device, "operators": operators})
}

fn source(name: &str, found: &[Found]) -> String {
    let plugin = found.iter().find(|f| f.outcome.as_ref().is_ok_and(|i| i.name == name));
    match plugin.filter(|_| !is_linked(name)) {
        Some(f) => f.path.display().to_string(),
        None => "linked in".into(),
    }
}

fn reason(f: &Found) -> Option<String> {
    let e = f.outcome.as_ref().err()?;
    let mut text = e.to_string();
    let mut next = std::error::Error::source(e);
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    Some(text)
}

fn rows(name: &str, from: &str, targets: &Result<Vec<Target>, BackendError>) -> Vec<Vec<String>> {
    let none = |why: String| {
        let mut row = vec![name.to_owned(), String::new(), why];
        row.extend(std::iter::repeat_n(String::new(), 5));
        row.push(from.to_owned());
        vec![row]
    };
    let row = |(i, t): (usize, &Target)| {
        let memory = if t.memory.total == 0 { String::new() } else { bytes(t.memory.total) };
        let cells = [
            t.device.clone(),
            t.uuid.clone(),
            t.arch.clone(),
            t.driver.clone(),
            memory,
            t.features.join(" "),
        ];
        let mut row = vec![name.to_owned(), i.to_string()];
        row.extend(cells);
        row.push(from.to_owned());
        row
    };
    match targets {
        Ok(all) if all.is_empty() => none("no device".into()),
        Ok(all) => all.iter().enumerate().map(row).collect(),
        Err(e) => none(e.to_string()),
    }
}

/// A target for programs.
pub fn target_json(t: &Target) -> Value {
    json!({
        "backend": t.backend, "version": t.version, "arch": t.arch, "device": t.device, "driver": t.driver,
        "uuid": t.uuid, "traits": t.traits, "features": t.features, "numbers": t.numbers, "fingerprint": t.fingerprint(),
        "memory": {
            "alignment": t.memory.alignment, "max_binding": t.memory.max_binding,
            "in_place": t.memory.in_place, "total": t.memory.total,
        },
    })
}

fn backend_json(name: &str, from: &str, targets: &Result<Vec<Target>, BackendError>) -> Value {
    let devices: Vec<Value> = targets.iter().flatten().map(target_json).collect();
    json!({"name": name, "from": from, "devices": devices, "error": targets.as_ref().err().map(|e| e.to_string())})
}

fn found_json(f: &Found) -> Value {
    let info = f.outcome.as_ref().ok().map(|i| {
        json!({
            "name": i.name, "vendor": i.vendor, "version": i.version, "build_id": i.build_id,
            "abi": format!("{}.{}", i.abi.0, i.abi.1), "kinds": i.kinds, "flags": i.flags,
        })
    });
    json!({
        "path": f.path.display().to_string(), "origin": format!("{:?}", f.origin).to_lowercase(),
        "plugin": info, "refused": reason(f),
    })
}
