//! Rewrites of several layers into fewer, one idea a file.
//!
//! A pattern finds sites and applies them one at a time, so that a search may take or leave each. A site is looked at
//! again when it is applied: one that other rewrites have changed is left alone. Rewrites keep names and types of the
//! graph's outputs, and what is read from outside a site stays.

mod around;
mod attention;
mod attention_apart;
mod attention_cache;
mod attention_heads;
mod attention_windows;
mod batched_matmul;
mod concat_in_place;
mod conv_transpose;
mod einsum;
mod fold_scale;
mod gated_product;
mod gelu;
mod group_norm;
mod integer_terms;
mod layer_norm;
mod matmul_flags;
mod moves;
mod norm_product;
mod parallel_conv;
mod parallel_gather;
mod parallel_matmul;
mod parallel_rotary;
mod pat;
mod patches;
mod phases;
mod pick;
mod quantized;
mod recurrence;
mod repeated_parts;
mod repeats;
mod reshapes;
mod roll;
mod rotary;
mod softmax;
mod sparse;
mod tail;
mod transposes;
mod view;
mod weights_along;

use super::{Pass, PassCx, bytes, writer::Writer};
use crate::BuildError;
use kiln_backend::assisted::{ORACLE, ORACLE_IS_FALLBACK};
use kiln_backend::{Region, Target};
use kiln_ir::{Graph, IrError, NodeId, ValueId};
use std::collections::HashSet;
pub(crate) use view::View;
pub(crate) use view::{constant, input};

/// Place where a pattern applies: the node whose result the rewrite replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The last of its nodes.
    pub root: NodeId,
}

/// A kind of rewrite.
#[derive(Clone, Copy)]
pub struct Pattern {
    /// Name for reports, tests and errors.
    pub name: &'static str,
    /// Finds the sites, in the order of roots.
    pub find: fn(&Graph) -> Vec<Site>,
    /// Rewrites one site; false, and nothing changed, where it does not apply (any more).
    pub apply: fn(&mut Graph, Site) -> Result<bool, IrError>,
    /// Whether it writes layers over weights, which the constant folder must evaluate.
    pub weights: bool,
    /// Whether it is always worth it. Others are alternatives for the search.
    pub always: bool,
    /// Whether the search tries it when formats are decided.
    pub late: bool,
    /// Whether the search takes it only where runs of the whole network are faster with it.
    pub by_runs: bool,
    /// Whether the search looks at a site for this target, or a pass applies a pattern that is always worth it elsewhere.
    pub wanted: fn(&Target, &Graph, NodeId) -> bool,
}

/// A pattern as code: what it found at a node, and how that is rewritten.
trait Rule: Sized {
    /// Name of the rule.
    const NAME: &'static str;
    /// See [`Pattern::weights`].
    const WEIGHTS: bool = false;
    /// See [`Pattern::always`].
    const ALWAYS: bool = true;
    /// See [`Pattern::late`].
    const LATE: bool = false;
    /// See [`Pattern::by_runs`].
    const BY_RUNS: bool = false;

    /// See [`Pattern::wanted`].
    fn wanted(_: &Target, _: &Graph, _: NodeId) -> bool {
        true
    }

    /// Whether it applies with this node as the last.
    fn find(view: &View<'_>, root: NodeId) -> Option<Self>;

    /// The nodes that the rewrite replaces, whose inner results nobody else may read. Only the root by default.
    fn inside(&self) -> &[NodeId] {
        &[]
    }

    /// Writes the new layers and puts the result in the place of that of `root`; false if that is impossible.
    fn write(self, w: Writer<'_>, root: NodeId) -> Result<bool, IrError>;
}

const fn pattern<R: Rule>() -> Pattern {
    Pattern {
        name: R::NAME,
        find: find_all::<R>,
        apply: apply::<R>,
        weights: R::WEIGHTS,
        always: R::ALWAYS,
        late: R::LATE,
        by_runs: R::BY_RUNS,
        wanted: R::wanted,
    }
}

/// The name of the rewrite of products by sparse weights.
pub const SPARSE: &str = "sparse-weights";

/// All patterns, in the order in which they are tried: moves first, as others look through fewer then.
pub const PATTERNS: &[Pattern] = &[
    pattern::<recurrence::Recurrence>(),
    pattern::<einsum::Einsum>(),
    pattern::<quantized::DequantizeLater>(),
    pattern::<quantized::QuantizeEarlier>(),
    pattern::<quantized::SameCodes>(),
    pattern::<transposes::Transposes>(),
    pattern::<reshapes::Reshapes>(),
    pattern::<rotary::Rotary>(),
    pattern::<roll::Roll>(),
    pattern::<gelu::Gelu>(),
    pattern::<layer_norm::LayerNorm>(),
    pattern::<group_norm::GroupNorm>(),
    pattern::<softmax::Softmax>(),
    pattern::<matmul_flags::MatmulFlags>(),
    pattern::<attention_windows::AttentionWindows>(),
    pattern::<attention::Attention>(),
    pattern::<attention_heads::AttentionHeads>(),
    pattern::<pick::Pick>(),
    pattern::<attention_cache::AttentionCache>(),
    pattern::<repeats::Repeats>(),
    pattern::<quantized::QuantizedProduct>(),
    pattern::<quantized::QuantizedConv>(),
    pattern::<quantized::QuantizedTransposed>(),
    pattern::<quantized::QuantizedPool>(),
    pattern::<quantized::QuantizedResize>(),
    pattern::<quantized::WeightCodes>(),
    pattern::<integer_terms::IntegerTerms>(),
    pattern::<quantized::FloatWeights>(),
    pattern::<around::Around>(),
    pattern::<moves::Moves>(),
    pattern::<fold_scale::FoldScale>(),
    pattern::<repeated_parts::RepeatedParts>(),
    pattern::<parallel_gather::ParallelGather>(),
    pattern::<parallel_matmul::ParallelMatmul>(),
    pattern::<parallel_rotary::ParallelRotary>(),
    pattern::<parallel_conv::ParallelConv>(),
    pattern::<batched_matmul::BatchedMatmul>(),
    pattern::<attention_apart::AttentionApart>(),
    pattern::<conv_transpose::ConvTranspose>(),
    pattern::<phases::Phases>(),
    pattern::<patches::Patches>(),
    pattern::<weights_along::WeightsAlong>(),
    pattern::<sparse::Sparse>(),
    pattern::<concat_in_place::ConcatInPlace>(),
    pattern::<gated_product::GatedProduct>(),
    pattern::<norm_product::NormProduct>(),
];

/// The pass that applies all patterns that are always worth it.
pub const PASS: Pass = Pass { name: "patterns", run };

/// The pass that makes kernels on codes of quantization and dequantization.
pub const QUANTIZED: Pass = Pass { name: "quantized", run: run_quantized };

fn run_quantized(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    if !cx.config.fuse || !cx.config.fold {
        return Ok(0);
    }
    let mut changes = 0;
    for p in [
        pattern::<quantized::DequantizeLater>(),
        pattern::<quantized::QuantizeEarlier>(),
        pattern::<quantized::SameCodes>(),
        pattern::<quantized::QuantizedProduct>(),
        pattern::<quantized::QuantizedConv>(),
        pattern::<quantized::QuantizedTransposed>(),
        pattern::<quantized::QuantizedPool>(),
        pattern::<quantized::QuantizedResize>(),
        pattern::<quantized::WeightCodes>(),
    ] {
        changes += apply_all(&p, g, cx)?;
    }
    Ok(changes)
}

/// The pass that merges chains of moves, which formats leave around others.
pub const MOVES: Pass = Pass { name: "merge-moves", run: merge_moves };

fn merge_moves(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    if !cx.config.fuse {
        return Ok(0);
    }
    apply_all(&pattern::<moves::Moves>(), g, cx)
}

fn run(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    if !cx.config.fuse {
        return Ok(0);
    }
    let mut changes = 0;
    for p in PATTERNS.iter().filter(|p| p.always && (cx.config.fold || !p.weights)) {
        changes += apply_all(p, g, cx)?;
    }
    Ok(changes)
}

/// Applies a pattern wherever it applies and the backend runs what it makes, again while it finds new sites. The last
/// sites go first, so that the largest of several that overlap is taken.
pub fn apply_all(p: &Pattern, g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    let mut changes = 0;
    loop {
        let mut applied = 0;
        let wanted = |s: &Site| !p.always || (p.wanted)(cx.target, g, s.root);
        let sites: Vec<Site> = (p.find)(g).into_iter().filter(wanted).collect();
        for site in sites.into_iter().rev() {
            applied += usize::from(try_site(p, g, site, cx)?);
        }
        changes += applied;
        if applied == 0 {
            return Ok(changes);
        }
    }
}

/// Applies one site unless the backend refuses a layer that it makes; then the graph stays as it is.
pub fn try_site(p: &Pattern, g: &mut Graph, site: Site, cx: &PassCx<'_>) -> Result<bool, BuildError> {
    let before = g.value_count();
    g.attempt(|changed| Ok((p.apply)(changed, site)? && holds(changed, before, cx)?))
}

/// Whether the constant folder makes the layers whose results have numbers from `before` on, or the backend runs them.
fn holds(g: &Graph, before: usize, cx: &PassCx<'_>) -> Result<bool, BuildError> {
    // Results that the constant folder will make.
    let mut folded = HashSet::new();
    let mut uses = None;
    for (id, node) in g.nodes() {
        if node.outputs.iter().any(|v| (v.0 as usize) < before) {
            continue;
        }
        let constant = |v: &ValueId| g.weight(*v).is_some() || folded.contains(v);
        if node.inputs.iter().flatten().all(constant) {
            if !node.outputs.iter().all(|&v| bytes(g, v).is_some_and(|n| n <= cx.config.fold_limit)) {
                return Ok(false);
            }
            folded.extend(node.outputs.iter().copied());
        } else if !node.op.is_pointwise() {
            let region = Region::extract_with(g, &[id], uses.get_or_insert_with(|| g.uses()))?;
            if cx.backend.supports(&region, cx.target).is_err() || by_oracle(&region, cx) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Whether the backend has no kernel for a layer and would leave it to the oracle.
fn by_oracle(region: &Region, cx: &PassCx<'_>) -> bool {
    cx.target.has(ORACLE_IS_FALLBACK)
        && cx.backend.tactics(region, cx.target).is_ok_and(|all| all.iter().all(|t| t.name == ORACLE))
}

fn find_all<R: Rule>(g: &Graph) -> Vec<Site> {
    let view = View::new(g);
    let roots = g.order().iter().copied();
    roots.filter(|&root| found::<R>(&view, root).is_some()).map(|root| Site { root }).collect()
}

fn found<R: Rule>(view: &View<'_>, root: NodeId) -> Option<R> {
    R::find(view, root).filter(|r| match r.inside() {
        [] => view.closed(&[root], root),
        inside => view.closed(inside, root),
    })
}

fn apply<R: Rule>(g: &mut Graph, site: Site) -> Result<bool, IrError> {
    let Some(rule) = found::<R>(&View::new(g), site.root) else { return Ok(false) };
    let inside = rule.inside();
    let replaced = |id: &NodeId| *id == site.root || inside.contains(id);
    let old = || g.nodes().filter(|(id, _)| replaced(id)).map(|(_, n)| n);
    let names: Vec<String> = old().map(|n| n.name.clone()).collect();
    let notes: Vec<String> = old().map(|n| n.meta.metadata.clone()).filter(|m| !m.is_empty()).collect();
    let before = g.value_ids().count();
    let Some(place) = g.get(site.root).and_then(|n| n.outputs.first().copied()) else { return Ok(false) };
    let name = g.value(place).name.clone();
    if !rule.write(Writer::before(g, site.root), site.root)? {
        return Ok(false);
    }
    if let Some(id) = g.find(&name).filter(|v| v.0 as usize >= before).and_then(|v| Some(g.producer(v)?.0))
        && let Some(node) = g.get_mut(id)
    {
        node.name = names.join(" + ");
        node.meta.metadata = notes.join(" + ");
    }
    g.remove_dead();
    Ok(true)
}
