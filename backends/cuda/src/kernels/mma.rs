//! Products of tiles by `mma.sync`, for every element type that it takes: matrix products and convolutions.

pub mod codes_rows_table;
pub mod codes_table;
pub mod sparse;
pub mod sparse_table;
pub mod table;
mod tile;

pub use self::tile::{Kind, Row, Tile};
