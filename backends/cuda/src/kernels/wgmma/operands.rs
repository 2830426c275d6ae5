//! Layout of a product's second operand in shared memory.

use kiln_codegen::Map;
use kiln_codegen::site::Cx;

/// Bytes of K in a line of a stage, but for tiles of half lines.
pub const STAGE_BYTES: usize = 128;

/// Layout of B in a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lies {
    Along,
    Across,
    /// Along the depth, so that a lane has the sums of neighbouring columns.
    Spread,
}

impl Lies {
    /// For a B along the depth, whose parts of a stage follow each other.
    pub fn along(columns: usize) -> Lies {
        if columns.is_multiple_of(32) { Lies::Spread } else { Lies::Along }
    }
}

/// The map of `lines` along the depth, in the order in which each lane has sums of eight neighbours; a box
/// has `columns` of them, and of each as many bytes as a line of a stage.
pub fn spread_map(size: usize, depth: usize, lines: usize, columns: usize, line: usize) -> Map {
    Map {
        input: 1,
        size,
        dims: [depth, 2, 4, 4, lines / 32].map(|d| d as u64).to_vec(),
        strides: [1, 8, 2, 32].map(|s| (s * depth) as u64).to_vec(),
        block: [line / size, 2, 4, 4, columns / 32].map(|d| d as u32).to_vec(),
        windows: None,
        scratch: false,
    }
}

/// Bytes of an element of the first input, at launch.
pub fn element_bytes(cx: &Cx<'_>) -> usize {
    cx.inputs.first().copied().flatten().map_or(2, |f| f.ty.dtype.bits() as usize / 8)
}
