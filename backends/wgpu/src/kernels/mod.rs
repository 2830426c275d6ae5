//! Kernels: one file a family of operators, each listing its kernels.

mod affine;
mod attention;
mod block;
mod conv;
mod cost;
mod deform;
mod einsum;
mod host;
mod long;
mod matmul;
mod moves;
mod norm;
mod pointwise;
mod recurrent;
mod reduce;
mod rows;
mod sample;
mod scatter;
mod select;
mod sequence;
mod sort;
pub mod template;
mod text;
mod tile;
mod window;

use crate::site::{Cx, Site};
use kiln_backend::{BackendError, Tactic};

/// One kernel: what it can run, its text, and how it is launched.
pub struct Kernel {
    /// Name of its tactics.
    pub name: &'static str,
    /// Operators that it can be the anchor of; empty for regions without an anchor.
    pub ops: &'static [&'static str],
    /// May pointwise operators follow in the same kernel?
    pub epilogue: bool,
    /// The ways to run the region, or a refusal.
    pub tactics: fn(&Site<'_>) -> Result<Vec<Tactic>, BackendError>,
    /// The text; depends on operators, attributes and element types only.
    pub source: fn(&Site<'_>, &Tactic) -> Result<Body, BackendError>,
    /// What to launch for these shapes.
    pub launch: fn(&Cx<'_>) -> Result<Vec<Launch>, BackendError>,
}

/// The part of a kernel's text that its family writes.
///
/// The frame gives it for each bound input i: `x<i>(at) -> value`, and `near<i>(at) -> i32`, the nearest number of 32
/// bits, and `w<i>(at)`, a word of packed elements; for output j: `emit<j>(at, value)`, `ry<j>(at)`; arguments `m(k)`; `scratch` and `sizes` (arrays of u32) where
/// asked for; `lo()` and `hi()`, the span of the launch.
#[derive(Default)]
pub struct Body {
    /// Functions.
    pub code: String,
    /// Entry points.
    pub entries: Vec<Entry>,
    /// Inputs that are bound, by position; `None` binds all that are present and not on the host.
    pub inputs: Option<Vec<usize>>,
    /// Does it use scratch memory?
    pub scratch: bool,
    /// Does it tell sizes to the host?
    pub sizes: bool,
    /// Does it find errors, and call `fault()` for them? What the error says.
    pub faults: Option<&'static str>,
}

/// One entry point.
pub enum Entry {
    /// One thread computes the elements of one word of output `j` by `fn compute<j>(at: u32) -> value`.
    Map(usize),
    /// A function of this name in the text.
    Free(&'static str),
    /// The same, writing no outputs.
    Partial(&'static str),
}

/// One dispatch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Which entry point.
    pub entry: usize,
    /// What `m(k)` gives.
    pub words: Vec<u32>,
    /// How large.
    pub grid: Grid,
    /// Binds another input in the place of one: (place, input).
    pub swap: Option<(usize, usize)>,
    /// What `lo()` and `hi()` give: mostly the rounds of a loop that this launch makes.
    pub span: (u32, u32),
    /// Scratch memory in bytes.
    pub scratch: u64,
    /// Runs before the sizes of data-dependent outputs are read.
    pub counts: bool,
}

/// The size of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grid {
    /// All words of the output of a `Map` entry.
    Output,
    /// This many threads, 64 a workgroup; `args[0]` has the number.
    Threads(u64),
    /// This many workgroups; `args[0]` has the number.
    Groups(u64),
}

impl Launch {
    /// Entry `entry`, which is a map.
    pub fn map(entry: usize, words: Vec<u32>) -> Launch {
        Launch { entry, words, grid: Grid::Output, swap: None, span: (0, 0), scratch: 0, counts: false }
    }

    /// Another grid.
    pub fn on(self, grid: Grid) -> Launch {
        Launch { grid, ..self }
    }

    /// With another span.
    pub fn span(self, lo: usize, hi: usize) -> Result<Launch, BackendError> {
        Ok(Launch { span: (word(lo)?, word(hi)?), ..self })
    }

    /// With scratch memory.
    pub fn scratch(self, bytes: u64) -> Launch {
        Launch { scratch: bytes, ..self }
    }
}

impl Body {
    /// A body with one map over output 0.
    pub fn map(code: String) -> Body {
        Body { code, entries: vec![Entry::Map(0)], ..Body::default() }
    }
}

/// All kernels, the preferred ones of an operator first.
#[rustfmt::skip]
pub const FAMILIES: &[&[Kernel]] = &[
    pointwise::KERNELS,
    affine::KERNELS,
    attention::KERNELS,
    conv::KERNELS,
    deform::KERNELS,
    einsum::KERNELS,
    host::KERNELS,
    matmul::KERNELS,
    moves::KERNELS,
    norm::KERNELS,
    recurrent::KERNELS,
    reduce::KERNELS,
    rows::KERNELS,
    sample::KERNELS,
    scatter::KERNELS,
    select::KERNELS,
    sequence::KERNELS,
    text::KERNELS,
    window::KERNELS,
];

/// Templates that several families use.
const MOVES: &str = include_str!("../../../../shaders/moves.wgsl");

/// All kernels.
pub fn all() -> impl Iterator<Item = &'static Kernel> {
    FAMILIES.iter().flat_map(|f| f.iter())
}

/// One tactic of the kernel's name.
pub fn plain(name: &str) -> Result<Vec<Tactic>, BackendError> {
    Ok(vec![Tactic::plain(name)])
}

/// A number as an argument word.
pub fn word(n: usize) -> Result<u32, BackendError> {
    u32::try_from(n).map_err(|_| BackendError::Unsupported(format!("{n} does not fit into 32 bits")))
}

/// Numbers as argument words.
pub fn words(n: impl IntoIterator<Item = usize>) -> Result<Vec<u32>, BackendError> {
    n.into_iter().map(word).collect()
}
