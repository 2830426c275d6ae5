//! Families of generic kernels: the half that runs on the host, shared by backends that print kernel text.
//!
//! One file a family of operators, each listing its [`Kernel`]s: what it can run, what the region adds to its
//! kernel files, and what is launched for given shapes. The files are written once in every [`Dialect`]. A kernel's text depends
//! on operators, element types and attributes but not on shapes: those travel as argument words, so that a new shape
//! compiles nothing.

pub mod attention;
pub mod cast;
pub mod checks;
pub mod compiled;
pub mod conv;
pub mod gather;
pub mod generate;
pub mod limits;
pub mod long;
pub mod loss;
pub mod matmul;
pub mod norm;
pub mod offer;
pub mod params;
pub mod planned;
pub mod planner;
pub mod plugin;
pub mod pointwise;
pub mod pool;
pub mod recurrent;
pub mod reduce;
pub mod rows;
pub mod sample;
pub mod scatter;
pub mod select;
pub mod shape;
mod side;
pub mod signal;
pub mod slice;
pub mod softmax;
pub mod sort;
pub mod text;
pub mod transpose;
pub mod views;
pub mod window;

mod cx;
mod dialect;
pub mod expression;
mod refusal;
mod reshapes;
pub mod rounding;
pub mod scalar;
pub mod site;
mod tabulate;

pub use dialect::Dialect;
pub use kiln_backend::launch::{Grid, Launch, Map, Windows, word, words};

pub use kiln_backend::params;

use kiln_backend::{BackendError, Tactic};
use site::{Cx, Site};

/// One kernel: what it can run, its text, and how it is launched.
pub struct Kernel {
    /// Name of its tactics.
    pub name: &'static str,
    /// Operators that it can be the anchor of; empty for regions without an anchor.
    pub ops: &'static [&'static str],
    /// May pointwise operators follow in the same kernel?
    pub epilogue: bool,
    /// Its way to read inputs that moves stand in front of.
    pub views: Views,
    /// Whether a reduction of the rows of its result may follow as a second output: see [`rows`].
    pub side_results: bool,
    /// The ways to run the region, or a refusal.
    pub tactics: fn(&Site<'_>) -> Result<Vec<Tactic>, BackendError>,
    /// The text; depends on operators, attributes and element types only.
    pub source: fn(&Site<'_>, &Tactic) -> Result<Body, BackendError>,
    /// Launches for these shapes.
    pub launch: fn(&Cx<'_>) -> Result<Vec<Launch>, BackendError>,
}

/// A way to read inputs of the anchor that moves (reshapes, transposes, slices) stand in front of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Views {
    /// Not at all: inputs have to lie as their shapes say.
    Whole,
    /// Its launch passes strides on ([`Cx::view`](site::Cx::view)); the last dimension has to be contiguous.
    Rows,
    /// Its launch passes strides on, of all dimensions.
    Strided,
    /// It reads them by functions `x<i>(at)` alone, which find the element in the frame.
    Framed,
}

type Source = fn(&Site<'_>, &Tactic) -> Result<Body, BackendError>;
type Launcher = fn(&Cx<'_>) -> Result<Vec<Launch>, BackendError>;

impl Kernel {
    /// One whose only tactic has its name, and behind which pointwise operators may follow.
    pub const fn of(
        name: &'static str,
        ops: &'static [&'static str],
        source: Source,
        launch: Launcher,
    ) -> Kernel {
        let tactics: fn(&Site<'_>) -> _ = |site| plain(site.kernel_name());
        Kernel {
            name,
            ops,
            epilogue: true,
            views: Views::Whole,
            side_results: false,
            tactics,
            source,
            launch,
        }
    }

    /// The same, but nothing may follow.
    pub const fn alone(
        name: &'static str,
        ops: &'static [&'static str],
        source: Source,
        launch: Launcher,
    ) -> Kernel {
        Kernel { epilogue: false, ..Kernel::of(name, ops, source, launch) }
    }

    /// The kernel, which reads inputs by functions alone, so that moves may stand in front of them.
    pub const fn framed(self) -> Kernel {
        Kernel { views: Views::Framed, ..self }
    }
}

/// The part of a kernel's text that its family writes.
///
/// The frame defines for each bound input i: `x<i>(at) -> value`, and `near<i>(at) -> i32`, the nearest number of 32
/// bits; for output j: `emit<j>(at, value)`, `ry<j>(at)`; the words of the parameters; `scratch` and `sizes` (arrays of u32) where
/// asked for; where the dialect has [spans](Dialect::spans) `lo()` and `hi()`, the span of the launch.
#[derive(Default)]
pub struct Body {
    /// Functions.
    pub code: String,
    /// Kernel files that it is made of, by family and name (`"norm/lrn"`); the frame finds them in its language.
    pub files: Vec<&'static str>,
    /// Entry points.
    pub entries: Vec<Entry>,
    /// Inputs that are bound, by position; `None` binds all that are present and not on the host.
    pub inputs: Option<Vec<usize>>,
    /// Inputs whose functions `x<i>(at)` take positions of 64 bits.
    pub far: Vec<usize>,
    /// Whether it uses scratch memory.
    pub scratch: bool,
    /// Whether it writes sizes for the host.
    pub sizes: bool,
    /// Number of maps of its launches.
    pub maps: u32,
    /// Bytes of memory that a block shares, beside what the kernel files declare themselves.
    pub shared: u32,
    /// Outputs that are bound, but that it does not write, as nobody reads them.
    pub unwritten: Vec<usize>,
    /// Inputs whose functions `x<i>(at)` read through moves, in order. Behind the kernel's own words each has those of its view:
    /// rank, offset, and as many dimensions and strides as its shape has; see [`planner`].
    pub framed: Vec<usize>,
    /// Index inputs that its last entry points check, in this order; see [`checks`].
    pub checks: Vec<usize>,
    /// Whether launches of a result with elements check all index inputs themselves, as they read every index.
    pub checking: bool,
}

/// One entry point.
pub enum Entry {
    /// One thread computes the elements of one word of output 0 by the region's expression, which has no anchor.
    Expression,
    /// One thread computes the elements of one word of output `j` by a function of a kernel file, `name(at) -> value`.
    Element(usize, &'static str),
    /// Threads that each run a function of a kernel file, given their number.
    Threads(Threads),
    /// Blocks of threads that each run a function of a kernel file.
    Blocks(Blocks),
    /// Blocks of threads that compute rows of output 0 and the side result of each row; see [`rows`]. An element is computed by a
    /// function as in [`Entry::Element`], or by the expression.
    Rows(Option<&'static str>),
    /// One thread for each element of an index input, by position, which passes it to [`checks`]. The name is `check<i>`.
    Check(usize),
}

/// An entry point in a kernel file, one thread each.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    /// The function.
    pub name: &'static str,
    /// Whether it writes outputs.
    pub writes: bool,
}

/// An entry point in a kernel file, a block of threads each.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    /// The function.
    pub name: &'static str,
    /// Whether it writes outputs.
    pub writes: bool,
    /// Threads of a block. WGSL says so in the file.
    pub threads: u32,
    /// Blocks that registers of a multiprocessor are to suffice for, if it matters.
    pub beside: Option<u32>,
    /// Whether it waits by itself for the kernel in front, behind work that does not depend on that one.
    pub early: bool,
    /// Blocks of a cluster, which divide the number of blocks; 1 where there are no clusters.
    pub cluster: u32,
    /// Do all blocks run at once, or none, so that they may wait for each other?
    pub together: bool,
}

impl Entry {
    /// Threads that write outputs.
    pub const fn threads(name: &'static str) -> Entry {
        Entry::Threads(Threads { name, writes: true })
    }

    /// Blocks of `threads` threads that write outputs.
    pub const fn blocks(name: &'static str, threads: u32) -> Entry {
        Entry::Blocks(Blocks::of(name, threads))
    }

    /// The same, writing no outputs.
    pub const fn silent(self) -> Entry {
        match self {
            Entry::Threads(t) => Entry::Threads(Threads { writes: false, ..t }),
            Entry::Blocks(b) => Entry::Blocks(Blocks { writes: false, ..b }),
            other => other,
        }
    }

    /// Whether it writes elements of outputs at places of its choice.
    pub fn writes(&self) -> bool {
        match self {
            Entry::Threads(t) => t.writes,
            Entry::Blocks(b) => b.writes,
            Entry::Rows(_) => true,
            _ => false,
        }
    }

    /// The function that computes an element of the output that it maps, or whose rows it computes; none of an expression.
    pub fn element(&self) -> Option<&'static str> {
        match *self {
            Entry::Element(_, name) => Some(name),
            Entry::Rows(name) => name,
            _ => None,
        }
    }

    /// The output that it maps.
    pub fn mapped(&self) -> Option<usize> {
        match *self {
            Entry::Expression => Some(0),
            Entry::Element(j, _) => Some(j),
            _ => None,
        }
    }
}

impl Blocks {
    /// Blocks of `threads` threads that write outputs.
    pub const fn of(name: &'static str, threads: u32) -> Blocks {
        Blocks { name, writes: true, threads, beside: None, early: false, cluster: 1, together: false }
    }
}

impl Body {
    /// A body of the region's expression alone.
    pub fn expression() -> Body {
        Body { entries: vec![Entry::Expression], ..Body::default() }
    }

    /// A body of one kernel file with these entry points.
    pub fn of(file: &'static str, entries: Vec<Entry>) -> Body {
        Body { files: vec![file], entries, ..Body::default() }
    }

    /// A body of one kernel file with a map over output 0 by the function `element`.
    pub fn element(file: &'static str, element: &'static str) -> Body {
        Body::of(file, vec![Entry::Element(0, element)])
    }

    /// Distance in words from the view of a framed input to the words of the expression behind it; `None` for other inputs.
    pub fn view_words(&self, site: &site::Site<'_>, input: usize) -> Option<u32> {
        let at = self.framed.iter().position(|&i| i == input)?;
        let words = |&i: &usize| views::words_of_view(site.rank(i).unwrap_or(0)) as u32;
        Some(self.framed.get(at..)?.iter().map(words).sum())
    }

    /// Distance in words from the place of an [inserted](site::Site::insert) result to the words of the expression.
    pub fn place_words(&self, site: &site::Site<'_>) -> Option<u32> {
        site.insert?;
        let views = self.framed.first().map_or(Some(0), |&i| self.view_words(site, i));
        Some(slice::insert::PLACE_WORDS + views?)
    }

    /// The body with further functions that its file calls.
    pub fn with(self, code: String) -> Body {
        Body { code: self.code + &code, ..self }
    }
}

/// The generic kernels, the preferred ones of an operator first.
#[rustfmt::skip]
pub const FAMILIES: &[&[Kernel]] = &[
    pointwise::KERNELS,
    attention::KERNELS,
    attention::kv_cache::KERNELS,
    attention::linear::KERNELS,
    attention::rotary::KERNELS,
    cast::KERNELS,
    conv::KERNELS,
    conv::transposed::KERNELS,
    conv::deformable::KERNELS,
    gather::KERNELS,
    generate::KERNELS,
    generate::assertion::KERNELS,
    loss::KERNELS,
    matmul::KERNELS,
    matmul::codes::KERNELS,
    matmul::det::KERNELS,
    matmul::einsum::KERNELS,
    matmul::gated::KERNELS,
    matmul::normed::KERNELS,
    matmul::sparse::KERNELS,
    norm::KERNELS,
    pool::KERNELS,
    recurrent::KERNELS,
    reduce::KERNELS,
    reduce::argreduce::KERNELS,
    reduce::cumulative::KERNELS,
    sample::KERNELS,
    scatter::KERNELS,
    select::KERNELS,
    select::nms::KERNELS,
    select::unique::KERNELS,
    shape::KERNELS,
    signal::KERNELS,
    slice::KERNELS,
    slice::insert::KERNELS,
    softmax::KERNELS,
    sort::KERNELS,
    text::KERNELS,
    transpose::KERNELS,
];

/// One tactic of the kernel's name.
pub fn plain(name: &str) -> Result<Vec<Tactic>, BackendError> {
    Ok(vec![Tactic::plain(name)])
}
