//! The rewrites that may be taken or left, and where.

use crate::BuildError;
use crate::cache::describe;
use crate::passes::patterns::{self, PATTERNS, Pattern};
use crate::passes::{PassCx, layout, padded_channels, plugin_formats};
use kiln_backend::Region;
use kiln_ir::{Graph, IrError, NodeId, Op};
use std::collections::BTreeSet;

/// A rewrite at one site.
pub enum Rewrite {
    /// Channels last for an island.
    ChannelsLast(Vec<NodeId>),
    /// Other formats for the tensors of a plug-in layer.
    PluginFormats(NodeId, Op),
    /// More channels, up to whole vectors, for a set of values.
    PaddedChannels(Box<padded_channels::Set>),
    /// A pattern that does not always pay, at its last node.
    Pattern(&'static Pattern, NodeId),
}

impl Rewrite {
    /// Name for reports.
    pub fn name(&self) -> &'static str {
        match self {
            Rewrite::ChannelsLast(_) => layout::PASS.name,
            Rewrite::PluginFormats(..) => plugin_formats::NAME,
            Rewrite::PaddedChannels(_) => padded_channels::PASS.name,
            Rewrite::Pattern(p, _) => p.name,
        }
    }

    /// Whether runs of the whole network confirm that it pays.
    pub fn by_runs(&self) -> bool {
        matches!(self, Rewrite::Pattern(p, _) if p.by_runs)
    }

    /// Text that distinguishes it from other rewrites of this name at its site.
    fn variant(&self) -> String {
        match self {
            Rewrite::PluginFormats(_, op) => format!(" {op:?}"),
            _ => String::new(),
        }
    }

    /// Nodes that tell its site from others.
    pub fn nodes(&self) -> &[NodeId] {
        match self {
            Rewrite::ChannelsLast(island) => island,
            Rewrite::PaddedChannels(set) => &set.nodes,
            Rewrite::PluginFormats(root, _) | Rewrite::Pattern(_, root) => std::slice::from_ref(root),
        }
    }

    /// Changes the graph; false, and nothing changed, where it does not apply or the backend lacks a kernel for it.
    pub fn apply(&self, g: &mut Graph, cx: &PassCx<'_>) -> Result<bool, BuildError> {
        match self {
            Rewrite::ChannelsLast(island) => layout::apply(g, island).map(|()| true).map_err(Into::into),
            Rewrite::PaddedChannels(set) => padded_channels::apply(g, set),
            Rewrite::PluginFormats(root, op) => plugin_formats::apply(g, cx, *root, op),
            Rewrite::Pattern(p, root) => patterns::try_site(p, g, patterns::Site { root: *root }, cx),
        }
    }
}

/// All places for rewrites by patterns.
pub fn by_patterns(g: &Graph, cx: &PassCx<'_>) -> Vec<Rewrite> {
    sites_of(g, cx, false)
}

/// All places for rewrites by patterns that are tried when formats are decided.
pub fn by_late_patterns(g: &Graph, cx: &PassCx<'_>) -> Vec<Rewrite> {
    sites_of(g, cx, true)
}

fn sites_of(g: &Graph, cx: &PassCx<'_>, late: bool) -> Vec<Rewrite> {
    let wanted =
        |p: &&Pattern| !p.always && p.late == late && cx.config.fuse && (cx.config.fold || !p.weights);
    let sites = |p: &'static Pattern| {
        let wanted = (p.find)(g).into_iter().filter(move |s| (p.wanted)(cx.target, g, s.root));
        wanted.map(move |s| Rewrite::Pattern(p, s.root))
    };
    PATTERNS.iter().filter(wanted).flat_map(sites).collect()
}

/// All places for another format.
pub fn formats(g: &Graph, _: &PassCx<'_>) -> Vec<Rewrite> {
    let of_plugins = plugin_formats::choices(g).into_iter().map(|(id, op)| Rewrite::PluginFormats(id, op));
    layout::islands(g).into_iter().map(Rewrite::ChannelsLast).chain(of_plugins).collect()
}

/// All values that may get more channels.
pub fn padded(g: &Graph, cx: &PassCx<'_>) -> Vec<Rewrite> {
    let wanted = cx.config.fuse && cx.config.fold;
    let sets = if wanted { padded_channels::sets(g, cx.target) } else { Vec::new() };
    sets.into_iter().map(|set| Rewrite::PaddedChannels(Box::new(set))).collect()
}

/// The first class that was not seen yet: sites that are equal but for names.
pub fn next_class(
    g: &Graph,
    all: Vec<Rewrite>,
    seen: &mut BTreeSet<String>,
) -> Result<Option<Vec<Rewrite>>, IrError> {
    let mut found: Option<(String, Vec<Rewrite>)> = None;
    let uses = g.uses();
    for rewrite in all {
        let text = format!(
            "{}{}\n{}",
            rewrite.name(),
            rewrite.variant(),
            describe(&Region::extract_with(g, rewrite.nodes(), &uses)?.graph)
        );
        match &mut found {
            Some((class, sites)) if *class == text => sites.push(rewrite),
            None if !seen.contains(&text) => found = Some((text, vec![rewrite])),
            _ => {}
        }
    }
    Ok(found.map(|(class, sites)| {
        seen.insert(class);
        sites
    }))
}
