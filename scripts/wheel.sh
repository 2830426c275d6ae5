#!/usr/bin/env bash
# Makes the Python wheel, into .cache/wheels (or the folder of the variable WHEELS): of a release build with maturin, which fits other
# machines, too; with --dev of what the workspace has built last, for tests on this machine. One wheel is for all versions of Python from
# 3.11 on; --python=PROGRAM makes the one that a free-threaded Python (from 3.14t on) wants instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
WHEELS=${WHEELS:-$PWD/.cache/wheels}
MATURIN=.cache/maturin

DEV=0
if [ "${1:-}" = --dev ]; then DEV=1 && shift; fi
PROGRAM=()
case ${1:-} in
    --python=?*) PROGRAM=("${1#--python=}") && shift ;;
esac
[ $# = 0 ] || { echo "usage: scripts/wheel.sh [--dev] [--python=PROGRAM]" >&2; exit 2; }
INTERPRETER=(${PROGRAM:+--interpreter "${PROGRAM[0]}"})
if [ $DEV = 1 ]; then
    if [ ${#PROGRAM[@]} -gt 0 ]; then export PYO3_PYTHON=${PROGRAM[0]}; fi
    cargo build --workspace --lib --quiet
    python3 python/pack.py target/debug "$WHEELS" "${PROGRAM[@]}"
    exit
fi

if [ ! -x "$MATURIN/bin/maturin" ]; then
    python3 -m venv "$MATURIN"
    "$MATURIN/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.16,<2'
fi
cargo build --workspace --lib --release --quiet
# Libraries of backends are opened by path, so that nothing is to be repaired in them.
trap 'rm -rf python/kiln/lib' EXIT
mkdir -p python/kiln/lib
for backend in cuda wgpu; do
    cp "target/release/libkiln_backend_$backend.so" python/kiln/lib/
done
"$MATURIN/bin/maturin" build --release --manifest-path python/Cargo.toml --auditwheel skip --out "$WHEELS" "${INTERPRETER[@]}"
