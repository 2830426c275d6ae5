//! Names the shared library for the linker, and keeps it in memory: threads of backends outlive `dlclose`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libkiln_runtime.so.0");
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
        // Bounds of the tables that crates add to; nobody else may see them.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,start-stop-visibility=hidden");
    }
}
