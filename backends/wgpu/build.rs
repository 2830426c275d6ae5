//! Gives the backend a digest of everything that its kernels' texts are written from.

include!("../codegen/sources.rs");

fn main() -> std::io::Result<()> {
    digest(&["../../shaders", "../codegen/src", "src/dialect.rs", "src/kernels", "src/wgsl"])
}
