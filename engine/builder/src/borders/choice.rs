//! Choice between the formats that inputs and outputs may have: by the time of the network with each, one tensor at a time.

use super::{Candidates, Packings, count, formats, in_memory};
use crate::passes::{PassCx, PassReport};
use crate::search::{Considered, Formed, GAIN, Given, Search};
use crate::tuner::Tuner;
use crate::{BuildConfig, BuildError};
use kiln_ir::{Graph, Packing};
use kiln_plan::graph_io;

/// A network with the formats of its border, searched to the end.
pub struct Attempt {
    /// Graph and regions; inputs and outputs have their shapes in memory.
    pub formed: Formed,
    /// Report of each pass.
    pub passes: Vec<PassReport>,
    /// Rewrites and formats that were considered.
    pub considered: Vec<Considered>,
    /// Settings, with profiles of shapes in memory.
    pub config: BuildConfig,
    /// Formats that are not linear.
    pub packings: Packings,
}

/// Reformats that stay where none may, then the time.
type Price = (usize, f64);

/// Builds a network in those of the formats that are fastest.
pub fn search(
    tuner: &mut Tuner<'_>,
    cx: PassCx<'_>,
    g: Graph,
    candidates: &Candidates,
) -> Result<Attempt, BuildError> {
    let io = graph_io(&g);
    for profile in &cx.config.profiles {
        profile.check(&io).map_err(|e| BuildError::Profile(e.to_string()))?;
    }
    let mut chosen = candidates.first();
    let mut considered = Vec::new();
    let mut best: Option<Price> = None;
    for (tensor, others) in candidates.alternatives() {
        for other in others {
            let now = match best {
                Some(price) => price,
                None => price(tuner, cx, &g, &chosen)?,
            };
            let mut changed = chosen.clone();
            changed.insert(tensor.to_owned(), *other);
            let new = price(tuner, cx, &g, &changed)?;
            let taken = new.0 < now.0 || (new.0 == now.0 && new.1 < now.1 * (1.0 - GAIN));
            considered.push(report(tensor, *other, [now, new], taken));
            best = Some(if taken { new } else { now });
            if taken {
                chosen = changed;
            }
        }
    }
    let (g, config, packings) = formatted(g, cx.config, &chosen)?;
    let mut search = Search { tuner, cx: cx.with_config(&config), given: Given::Profiles, considered };
    let (formed, passes) = search.build(g)?;
    let considered = search.considered;
    Ok(Attempt { formed, passes, considered, config, packings })
}

/// The graph in these formats, with settings that fit it.
fn formatted(
    mut g: Graph,
    config: &BuildConfig,
    chosen: &Packings,
) -> Result<(Graph, BuildConfig, Packings), BuildError> {
    let mut config = config.clone();
    g.allowed_formats.clear();
    let packings = formats::apply(&mut g, &mut config, chosen)?;
    in_memory(&mut config, &packings);
    Ok((g, config, packings))
}

/// The price of the network in these formats; that of a network which the backend refuses is infinite.
fn price(tuner: &mut Tuner<'_>, cx: PassCx<'_>, g: &Graph, chosen: &Packings) -> Result<Price, BuildError> {
    let (g, config, _) = formatted(g.clone(), cx.config, chosen)?;
    let work = cx.work.clone();
    let cx = cx.with_config(&config).trial(&work);
    let mut search = Search { tuner, cx, given: Given::Profiles, considered: Vec::new() };
    let formed = match search.build(g) {
        Err(BuildError::NoTactic { .. }) => return Ok((usize::MAX, f64::INFINITY)),
        other => other?.0,
    };
    let reformats = if config.direct_io { count(&formed.graph, &formed.regions) } else { 0 };
    match search.total(&formed) {
        Err(BuildError::NoTactic { .. }) => Ok((usize::MAX, f64::INFINITY)),
        total => Ok((reformats, total?)),
    }
}

fn report(tensor: &str, packing: Packing, [now, new]: [Price; 2], taken: bool) -> Considered {
    let fewer = new.0 < now.0;
    let why = match taken {
        true if fewer => "needs fewer reformats".into(),
        true => format!("{} is faster", packing.format),
        false => format!("{} is not faster", packing.format),
    };
    let known = |p: Price| Some(p.1).filter(|t| t.is_finite());
    Considered {
        rewrite: "formats",
        layer: tensor.to_owned(),
        sites: 1,
        without_ns: known(now),
        with_ns: known(new),
        taken,
        why,
    }
}
