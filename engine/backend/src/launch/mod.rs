//! Launches of a kernel: what the executor of a GPU backend is asked to run, as data that plans can hold.

mod column;
mod flat;
mod native;
pub mod params;
mod plugin;
mod program;
mod site;
mod table;

pub use column::Column;
pub use native::{NATIVE_TACTICS, NativeKernel, any_splits_graphs, splits_graphs};
pub use plugin::{Block, COPY_THREADS, PLUGIN_TACTICS, PluginKernel};
pub use program::{LaunchCase, LaunchProgram};
pub use site::{KernelOperands, LaunchSite, PlanLaunches, RegionValue};
pub use table::{LaunchTable, LaunchTables, MOST_POINTS, Recorder, Variable};

use crate::BackendError;
use minicbor::{Decode, Encode};
use std::ops::Not;

/// One dispatch of an entry point.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Launch {
    /// The entry point, by position among those of the kernel.
    #[n(0)]
    pub entry: usize,
    /// Argument words, which the kernel reads by position.
    #[n(1)]
    pub words: Vec<u32>,
    /// The number of threads or workgroups.
    #[n(2)]
    pub grid: Grid,
    /// Binds another input in the place of one: (place, input).
    #[n(3)]
    pub swap: Option<(usize, usize)>,
    /// First and end of the span of this launch: mostly the iterations of a loop that is cut into several launches.
    #[n(4)]
    pub span: (u32, u32),
    /// Scratch memory in bytes.
    #[n(5)]
    pub scratch: u64,
    /// Whether it runs before the sizes of data-dependent outputs are read.
    #[n(6)]
    pub counts: bool,
    /// Views of inputs for hardware that copies boxes.
    #[n(7)]
    pub maps: Vec<Map>,
}

/// The size of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Grid {
    /// A thread for each word of the output that the entry point maps.
    #[n(0)]
    Output,
    /// Number of threads, in workgroups of those of an entry point that maps; `args[0]` has the number.
    #[n(1)]
    Threads(#[n(0)] u64),
    /// Number of workgroups; `args[0]` has the number.
    #[n(2)]
    Groups(#[n(0)] u64),
}

/// A view of an input, or of scratch memory, for hardware that copies boxes of tensors into shared memory: CUDA's tensor maps. Dimensions are
/// listed from the innermost one on, which is contiguous.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Map {
    /// The anchor's input, by position.
    #[n(0)]
    pub input: usize,
    /// Bytes of an element.
    #[n(1)]
    pub size: usize,
    /// Sizes.
    #[n(2)]
    pub dims: Vec<u64>,
    /// Elements from one to the next, of every dimension but the innermost.
    #[n(3)]
    pub strides: Vec<u64>,
    /// Elements of every dimension that one copy takes; of windows, channels and then windows.
    #[n(4)]
    pub block: Vec<u32>,
    /// Sliding windows, where one copy takes the elements under one tap of neighbouring windows.
    #[n(5)]
    pub windows: Option<Windows>,
    /// Whether it is a view of the scratch memory of the launch, whatever the input.
    #[cbor(n(6), skip_if = "Not::not")]
    pub scratch: bool,
}

/// Sliding windows over the two dimensions between channels and images, the innermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Windows {
    /// Start of the first window.
    #[n(0)]
    pub lower: [i32; 2],
    /// Start of the last window, relative to the last element.
    #[n(1)]
    pub upper: [i32; 2],
    /// Distance from one window to the next.
    #[n(2)]
    pub steps: [u32; 2],
}

/// A fact of a run, beside shapes and contents, that launches may depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Condition {
    /// The anchor's input at this position is a weight, which no kernel writes.
    #[n(0)]
    Weight(#[n(0)] u32),
    /// The memory of an input and an output of the anchor, by position, starts at the same byte.
    #[n(1)]
    Aliased(#[n(0)] u32, #[n(1)] u32),
    /// The run begins with the anchor's input at this position: a weight or an input of the network, which no kernel of the run writes.
    #[n(2)]
    Given(#[n(0)] u32),
}

impl Launch {
    /// A launch of entry point `entry`, which maps an output.
    pub fn map(entry: usize, words: Vec<u32>) -> Launch {
        Launch {
            entry,
            words,
            grid: Grid::Output,
            swap: None,
            span: (0, 0),
            scratch: 0,
            counts: false,
            maps: Vec::new(),
        }
    }

    /// The launch on another grid.
    pub fn on(self, grid: Grid) -> Launch {
        Launch { grid, ..self }
    }

    /// The launch with another span.
    pub fn span(self, lo: usize, hi: usize) -> Result<Launch, BackendError> {
        Ok(Launch { span: (word(lo)?, word(hi)?), ..self })
    }

    /// The launch with scratch memory.
    pub fn scratch(self, bytes: u64) -> Launch {
        Launch { scratch: bytes, ..self }
    }
}

/// A number as an argument word.
pub fn word(n: usize) -> Result<u32, BackendError> {
    u32::try_from(n).map_err(|_| BackendError::Unsupported(format!("{n} does not fit into 32 bits")))
}

/// Numbers as argument words.
pub fn words(n: impl IntoIterator<Item = usize>) -> Result<Vec<u32>, BackendError> {
    n.into_iter().map(word).collect()
}
