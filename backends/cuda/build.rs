//! Gives the backend a digest of everything that its kernels' texts are written from.

include!("../codegen/sources.rs");

fn main() -> std::io::Result<()> {
    digest(&["../../kernels", "../codegen/src", "src/dialect.rs", "src/frame.rs", "src/frame", "src/kernels"])
}
