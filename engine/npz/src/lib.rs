//! NumPy arrays (`.npy`) and archives of them (`.npz`), read strictly and written deterministically.
//!
//! An [`Array`] holds its elements as little-endian bytes in C order, whatever the order in the file was. Headers are
//! checked before anything is allocated: an array takes at most what the file holds, a compressed one at most the 1,032
//! times that deflate can reach.

mod archive;
mod array;
mod dtype;
mod error;
mod header;
mod npy;

pub use archive::{
    Compression, read_npz, read_npz_bytes, read_npz_where, write_npz, write_npz_bytes, write_npz_from,
};
pub use array::Array;
pub use dtype::NpyType;
pub use error::NpzError;
pub use npy::{read_npy, write_npy};
