#!/usr/bin/env bash
# scripts/fuzz.sh SECONDS [TARGET]...: runs the fuzz targets (all of them if none is named) so long each, one after the
# other, on seeds made from tests/data. Stops at the first crash, whose input is then stored under fuzz/artifacts/.
# Wants cargo-fuzz: cargo install cargo-fuzz. For long runs on another machine: scripts/fuzz_pack.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { echo "fuzz: $*" >&2; exit 1; }

[[ ${1:-} =~ ^[0-9]+$ ]] || fail "usage: scripts/fuzz.sh SECONDS [TARGET]..."
seconds=$1
shift
command -v cargo-fuzz >/dev/null || fail "cargo-fuzz is missing: cargo install cargo-fuzz"

# Coverage is all that is asked of the compiler; address checking would want a nightly one.
export RUSTC_BOOTSTRAP=1
options=(--sanitizer none --release)
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | tail -n +2)

cargo fuzz build "${options[@]}" || fail "the targets do not build"
cargo run --quiet --package kiln-tests --example fuzz_seeds -- tests/data fuzz/corpus || fail "no seeds"
for target in "${targets[@]}"; do
    echo "== $target, $seconds s"
    log=fuzz/target/$target.log
    if ! cargo fuzz run "${options[@]}" "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048 \
        -timeout=20 -max_len=65536 -print_final_stats=1 >"$log" 2>&1; then
        tail -40 "$log"
        fail "$target: see fuzz/artifacts/$target and $log"
    fi
    grep -E 'stat::number_of_executed_units|stat::peak_rss_mb' "$log"
done
