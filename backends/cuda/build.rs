//! Defines a digest of all sources of kernel texts, a digest of the code that plans launches, and a table of the kernels' files.

include!("../codegen/sources.rs");

fn main() -> std::io::Result<()> {
    // The run-only form writes no texts.
    if std::env::var_os("CARGO_FEATURE_COMPILE").is_none() {
        return Ok(());
    }
    table("../../kernels", ".cuh")?;
    launch_code(&["src/dialect.rs", "src/kernels"])?;
    digest(
        "KILN_KERNEL_SOURCES",
        &[
            "../../kernels",
            "../codegen/src",
            "src/dialect.rs",
            "src/frame.rs",
            "src/frame",
            "src/kernels",
            "src/parameter.rs",
        ],
    )
}
