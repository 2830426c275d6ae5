#!/usr/bin/env bash
# Builds Kiln, builds an engine from a trained LeNet, runs it on 500 scans of handwritten digits and measures a single one: on
# every backend that finds a device (CUDA where the NVIDIA driver and NVRTC are, wgpu, the CPU), the best one
# first. Needs Rust; everything else is in the repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

data=tests/data/digits
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Graphics drivers complain where it is not set.
export XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-$work}

echo "demo: building Kiln; the first time this takes some minutes"
cargo build --release --quiet -p kiln-cli
# The other backends are plug-ins: the command finds them beside itself.
for backend in wgpu cuda; do
    cargo build --release --quiet -p "kiln-backend-$backend" || echo "demo: the $backend backend does not build here"
done
kiln=${CARGO_TARGET_DIR:-target}/release/kiln

"$kiln" backends

# demo BACKEND: an engine for it, its accuracy on all digits, and the latency of one.
demo() {
    echo
    echo "== LeNet on $1"
    "$kiln" build "$data/lenet_a.onnx" -o "$work/$1.kiln" --backend "$1" --timing-cache "$work/times.jsonl" \
        --min-shapes input:1x1x28x28 --opt-shapes input:100x1x28x28 --max-shapes input:500x1x28x28 || return 1
    echo
    "$kiln" run "$work/$1.kiln" --input input="$data/digits_test.npz:images" --accuracy "$data/digits_test.npz:labels" ||
        return 1
    echo
    "$kiln" bench "$work/$1.kiln" --shapes input:1x1x28x28 --duration 1
}

for backend in cuda wgpu cpu; do
    if ! "$kiln" backends | grep -q "│ $backend *┆ [0-9]"; then
        echo
        echo "demo: $backend is not here, or finds no device"
    elif ! demo "$backend"; then
        echo "demo: $backend does not run this model"
        [ "$backend" != cpu ] || exit 1
    fi
done
