//! Passes over the graph, one file each, in the order of [`BEFORE_TYPES`] and [`AFTER_TYPES`].

pub(crate) mod canonicalize;
mod context;
mod count_loops;
mod equal_weights;
mod fold_batch_norm;
mod fold_branches;
pub mod fold_constants;
pub mod folding;
pub(crate) mod io_types;
pub mod layout;
mod notes;
mod output_types;
pub mod padded_channels;
pub mod patterns;
pub mod plugin_formats;
mod plugin_layers;
pub mod precision;
mod simplify_shapes;
pub(crate) mod sparsity;
mod transposes;
mod writer;
mod zero_points;

pub use context::{PassCx, PassWork};
pub use notes::Notes;

use crate::BuildError;
use kiln_ir::{Graph, Node, ValueId};

/// A pass: its name, and what it does to a graph. Returns how many changes it made.
#[derive(Clone, Copy)]
pub struct Pass {
    /// Name for reports and errors.
    pub name: &'static str,
    /// Changes the graph.
    pub run: fn(&mut Graph, &PassCx<'_>) -> Result<usize, BuildError>,
}

/// Passes in front of the choice of types, in order.
pub const BEFORE_TYPES: &[Pass] = &[
    output_types::PASS,
    equal_weights::PASS,
    canonicalize::PASS,
    fold_constants::BUT_CODES,
    fold_branches::PASS,
    count_loops::PASS,
    fold_constants::BUT_CODES,
    simplify_shapes::PASS,
    zero_points::PASS,
    plugin_layers::PASS,
    // Ahead of types, so that weights are rounded or quantized as they are multiplied.
    fold_batch_norm::PASS,
    fold_constants::BUT_CODES,
    patterns::PASS,
    // Patterns make layers anew: equal ones are merged before each gets converted weights of its own.
    canonicalize::PASS,
    sparsity::PRUNE,
    fold_constants::BUT_CODES,
];

/// Passes behind the choice of types, in order.
pub const AFTER_TYPES: &[Pass] = &[
    canonicalize::PASS,
    patterns::QUANTIZED,
    fold_batch_norm::PASS,
    fold_constants::PASS,
    transposes::PASS,
    canonicalize::PASS,
];

/// Passes that no build runs everywhere: the search applies what they do site by site, where it pays.
pub const SEARCHED: &[Pass] = &[layout::PASS, padded_channels::PASS, precision::PASS];

/// Passes that clean up after a rewrite, in order.
pub const CLEAN: &[Pass] = &[fold_constants::PASS, transposes::PASS, patterns::MOVES, canonicalize::PASS];

/// Whether a layer always returns the same for the same inputs, and does nothing else.
fn pure(node: &Node) -> bool {
    let t = node.op.def().traits;
    !(t.random || t.side_effect) && node.regions.is_empty() && t.must_alias.is_empty()
}

/// Bytes of a value whose dimensions are numbers.
fn bytes(g: &Graph, v: ValueId) -> Option<u64> {
    let ty = g.ty(v);
    ty.dtype.bytes_for(ty.static_volume()? as u64)
}

/// Report of one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassReport {
    /// The pass.
    pub pass: &'static str,
    /// Changes it made.
    pub changes: usize,
}

/// Runs these passes, the verifier after each in debug builds.
pub fn run_list(g: &mut Graph, cx: &PassCx<'_>, passes: &[Pass]) -> Result<Vec<PassReport>, BuildError> {
    let mut reports = Vec::new();
    for pass in passes {
        let changes = (pass.run)(g, cx)?;
        if cfg!(debug_assertions) {
            g.verify().map_err(|source| BuildError::Pass { pass: pass.name, source })?;
        }
        tracing::debug!(pass = pass.name, changes, "pass");
        reports.push(PassReport { pass: pass.name, changes });
    }
    Ok(reports)
}

/// Runs the pass, or applies the pattern, of this name; for tests of one. `None` if there is none.
pub fn run_one(name: &str, g: &mut Graph, cx: &PassCx<'_>) -> Option<Result<usize, BuildError>> {
    let mut passes = BEFORE_TYPES.iter().chain(AFTER_TYPES).chain(SEARCHED);
    let pass = passes.find(|p| p.name == name).map(|p| (p.run)(g, cx));
    pass.or_else(|| {
        let pattern = patterns::PATTERNS.iter().find(|p| p.name == name)?;
        Some(patterns::apply_all(pattern, g, cx))
    })
}
