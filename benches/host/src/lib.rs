//! Benches of host code: `cargo bench -p kiln-benches`; see `benches/host/README.md`.
