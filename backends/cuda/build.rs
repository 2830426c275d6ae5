//! Gives the backend a digest of everything that its kernels' texts are written from, and a table of the kernels' files.

include!("../codegen/sources.rs");

fn main() -> std::io::Result<()> {
    table("../../kernels", ".cuh")?;
    digest(&["../../kernels", "../codegen/src", "src/dialect.rs", "src/frame.rs", "src/frame", "src/kernels"])
}
