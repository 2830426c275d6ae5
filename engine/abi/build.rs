//! Hands the target triple to the crate: cargo passes it to build scripts only.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=KILN_TARGET={}", std::env::var("TARGET").unwrap_or_default());
}
