//! Roles of operators: what passes, region forming and code generation do with each.

use crate::attr::Attrs;
use crate::fact::Fact;

/// The roles of an operator in the compiler, which reads them here instead of from lists of names.
#[derive(Clone, Copy, Debug)]
pub struct Roles {
    /// Map from the result's elements to those of the first input, if it only moves them.
    pub movement: Movement,
    /// Whether its kernel may compute pointwise layers that follow, if the backend agrees.
    pub absorbs_pointwise: bool,
    /// Whether its kernel may read inputs through [`Movement`]s in front of it, if the backend agrees.
    pub reads_through_movement: bool,
    /// Whether it holds regions, which run any number of times.
    pub control: bool,
    /// Whether its result follows from the shapes of its inputs, whose contents do not matter. It needs no kernel if only the host
    /// reads it.
    pub host_known: bool,
    /// Whether weak typing keeps it in f32 unless the user asks otherwise: its results grow with the number of elements, or
    /// are coordinates.
    pub keeps_f32: bool,
    /// Whether its result repeats along its operand, so that what is small beside the operand counts.
    pub periodic: bool,
    /// Treatment of images whose channels are their last dimension.
    pub layout: LayoutRule,
    /// Whether channels last may make it faster; the layout pass leaves islands without such a layer as they are.
    pub gains_channels_last: bool,
}

impl Roles {
    /// Roles of an operator without any.
    pub const NONE: Roles = Roles {
        movement: Movement::None,
        control: false,
        absorbs_pointwise: false,
        reads_through_movement: false,
        host_known: false,
        keeps_f32: false,
        periodic: false,
        layout: LayoutRule::Fixed,
        gains_channels_last: false,
    };
}

/// Movement of data: how the elements of a result follow from those of the first input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// No movement: elements are computed.
    None,
    /// Elements and shape stay.
    Identity,
    /// Bytes stay, with another element type.
    Reinterpretation,
    /// Elements stay in their order, in another shape.
    Reshape,
    /// Elements stay, with their dimensions in another order.
    Permutation,
    /// A part of the elements, at even steps along each dimension.
    Slice,
}

impl Movement {
    /// Whether the result can be the memory of the input.
    pub fn is_view(self) -> bool {
        matches!(self, Movement::Identity | Movement::Reinterpretation | Movement::Reshape)
    }

    /// Whether a kernel can address the input in the place of the result: strides and offsets say where elements are.
    pub fn is_addressable(self) -> bool {
        matches!(self, Movement::Reshape | Movement::Permutation | Movement::Slice)
    }
}

/// Treatment of images whose channels are their last dimension.
#[derive(Clone, Copy, Debug)]
pub enum LayoutRule {
    /// Not supported, unless the operator works element by element.
    Fixed,
    /// Attribute "layout", which holds for so many inputs, from the first on.
    Attribute(usize),
    /// Other numbers of the named axes.
    Axes(AxesRule),
}

/// The axes that an operator names: from attributes, what is known of its inputs, and the rank of the images. `None` where they
/// are not known, or other dimensions depend on the order.
pub type AxesRule = fn(&Attrs, &[Option<&Fact>], usize) -> Option<NamedAxes>;

/// Axes of images, and where the operator names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAxes {
    /// Place of the names.
    pub place: AxesPlace,
    /// The axes, from 0 on.
    pub axes: Vec<usize>,
}

/// Place where an operator names axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxesPlace {
    /// Attribute that is one axis.
    Axis(&'static str),
    /// Attribute that is a list.
    List(&'static str),
    /// Input of integers.
    Input(usize),
}
