//! The first elements of lines in an order: selected by digits, or sorted.

mod keyed;
pub mod radix;
pub mod select;
pub mod tiles;
