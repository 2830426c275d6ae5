//! Defines a digest of all sources of kernel texts, a digest of the code that plans launches, and a table of the kernels' files.

include!("../codegen/sources.rs");

fn main() -> std::io::Result<()> {
    table("../../shaders", ".wgsl")?;
    launch_code(&["src/dialect.rs", "src/kernels"])?;
    digest(
        "KILN_KERNEL_SOURCES",
        &["../../shaders", "../codegen/src", "src/dialect.rs", "src/kernels", "src/wgsl"],
    )
}
