//! Gives the backend a digest of everything that its kernels' texts are written from.

include!("../families/sources.rs");

fn main() -> std::io::Result<()> {
    digest(&[
        "../../kernels",
        "../families/src",
        "src/dialect.rs",
        "src/frame.rs",
        "src/frame",
        "src/kernels",
    ])
}
