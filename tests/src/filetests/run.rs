//! Running one case.

use super::{Case, same_results};
use crate::backends::{cpu, wgpu};
use kiln_backend::{Backend, Target};
use kiln_builder::passes::{self, PassCx, PassWork};
use kiln_builder::regions;
use kiln_ir::{Graph, Source, ValueId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The text that comes out; `None` where the backend that the case asks for is not here.
pub fn run(case: &Case) -> Result<Option<String>, String> {
    let Some((backend, target)) = backend(&case.settings.backend)? else { return Ok(None) };
    let work = PassWork::new(&case.settings.config);
    let cx = PassCx::new(&case.settings.config, backend.as_ref(), &target, &work);
    let mut g = Graph::from_text(&case.input).map_err(|e| e.to_string())?;
    g.verify().map_err(|e| format!("before: {e}"))?;
    let before = g.clone();
    let mut cut = String::new();
    for name in &case.passes {
        if name == "regions" {
            cut = regions_text(&g, &cx)?;
        } else {
            let done = passes::run_one(name, &mut g, &cx);
            if let Err(e) = done.ok_or_else(|| format!("there is no pass `{name}`"))? {
                return Ok(Some(format!("error: {e}")));
            }
            g.verify().map_err(|e| format!("after {name}: {e}"))?;
        }
    }
    same_results(&before, &g, &case.settings)?;
    let text = text(&g);
    let body = if text == self::text(&before) { "unchanged".to_owned() } else { text.trim_end().to_owned() };
    Ok(Some(body + &cut))
}

/// The graph as text, without constants that nobody reads.
fn text(g: &Graph) -> String {
    let mut g = g.clone();
    let read: HashSet<ValueId> = g.uses().read().map(|(v, _)| v).chain(g.outputs.clone()).collect();
    for v in g.value_ids().filter(|v| !read.contains(v)) {
        if g.weight(v).is_some() {
            g.value_mut(v).source = Source::Dead;
        }
    }
    g.to_text()
}

type Asked = (Arc<dyn Backend>, Target);

fn backend(name: &str) -> Result<Option<Asked>, String> {
    let found = match name {
        "cpu" => Some(cpu()),
        "wgpu" => wgpu()?,
        _ => return Err(format!("there is no backend `{name}`")),
    };
    let Some(b) = found else { return Ok(None) };
    let target = b.targets().map_err(|e| e.to_string())?.into_iter().next().ok_or("no device")?;
    Ok(Some((b, target)))
}

/// One line `#: layer + layer` for each region, in execution order.
fn regions_text(g: &Graph, cx: &PassCx<'_>) -> Result<String, String> {
    let regions = regions::form(g, cx.backend, cx.target, cx.config.fuse);
    let mut seen = HashMap::new();
    let mut out = String::new();
    for nodes in &regions {
        let names: Vec<&str> = nodes.iter().filter_map(|&n| Some(g.get(n)?.name.as_str())).collect();
        out += &format!("\n#: {}", names.join(" + "));
        nodes.iter().for_each(|&n| *seen.entry(n).or_insert(0) += 1);
    }
    match g.order().iter().all(|n| seen.get(n) == Some(&1)) {
        true => Ok(out),
        false => Err(format!("regions do not cover every layer once:{out}")),
    }
}
