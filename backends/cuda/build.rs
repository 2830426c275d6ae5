//! Gives the backend a digest of everything that its kernels' texts are written from, and a table of the kernels' files.

include!("../codegen/sources.rs");

fn main() -> std::io::Result<()> {
    // The run-only form writes no texts.
    if std::env::var_os("CARGO_FEATURE_COMPILE").is_none() {
        return Ok(());
    }
    table("../../kernels", ".cuh")?;
    digest(&[
        "../../kernels",
        "../codegen/src",
        "src/dialect.rs",
        "src/frame.rs",
        "src/frame",
        "src/kernels",
        "src/parameter.rs",
    ])
}
