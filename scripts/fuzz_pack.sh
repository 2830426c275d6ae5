#!/usr/bin/env bash
# Gathers what fuzzes and attacks Kiln on a machine without a Rust toolchain into target/attack (or $OUT): the fuzz targets with
# minimized corpora, the `kiln` command, and the tests whose long runs are started by fuzz_run.sh and attack_run.sh in that
# folder. `BUILT=1` takes the executables that are there and builds nothing. Wants cargo-fuzz.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PACK=${OUT:-target/attack}
TARGETS=fuzz/target/x86_64-unknown-linux-gnu/release
LIMIT=$((40 << 20))
targets=$(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | tail -n +2)

if [ -z "${BUILT:-}" ]; then
    RUSTC_BOOTSTRAP=1 cargo fuzz build --sanitizer none --release
    cargo build --quiet -p kiln-cli
    cargo test --quiet --no-run -p kiln-cli --test files
    cargo test --quiet --no-run -p kiln-tests --test shape_bounds
fi
cargo run --quiet -p kiln-tests --example fuzz_seeds -- tests/data fuzz/corpus

rm -rf "$PACK"
mkdir -p "$PACK/targets" "$PACK/tests/data"
for target in $targets; do
    strip --strip-debug -o "$PACK/targets/$target" "$TARGETS/$target"
    mkdir -p "$PACK/corpus/$target"
    timeout 300 "$PACK/targets/$target" -merge=1 -rss_limit_mb=2048 -timeout=20 -max_len=65536 "$PACK/corpus/$target" \
        "fuzz/corpus/$target" >/dev/null 2>&1 || echo "fuzz_pack: the corpus of $target is as far as it was minimized" >&2
done
for name in files shape_bounds; do
    newest=$(find target/debug/deps -maxdepth 1 -type f -executable -name "$name-*" -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2)
    [ -n "$newest" ] || { echo "fuzz_pack: $name is not built" >&2; exit 1; }
    strip --strip-debug -o "$PACK/$name" "$newest"
done
strip --strip-debug -o "$PACK/kiln" target/debug/kiln
for folder in exports control_flow digits nlp; do
    mkdir -p "$PACK/tests/data/$folder"
    find "tests/data/$folder" -maxdepth 1 -name '*.onnx' -size -1025k -exec cp {} "$PACK/tests/data/$folder" \;
done
cp scripts/fuzz_run.sh scripts/attack_run.sh "$PACK"

size=$(tar -cf - -C "$PACK" . | xz -T2 -2 | wc -c)
echo "$PACK: $((size >> 20)) MiB compressed"
[ "$size" -le $LIMIT ] || { echo "fuzz_pack: more than $((LIMIT >> 20)) MiB" >&2; exit 1; }
