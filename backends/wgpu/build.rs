//! Gives the backend a digest of everything that its kernels' texts are written from.

include!("../families/sources.rs");

fn main() -> std::io::Result<()> {
    digest(&["../../shaders", "../families/src", "src/dialect.rs", "src/kernels", "src/wgsl"])
}
