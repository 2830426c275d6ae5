#!/usr/bin/env bash
# Installs what the tests need (scripts/setup.sh), then runs all checks and tests of the workspace, in the order in which
# they fail fastest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh

# setup.sh made sure of a Vulkan driver: tests of the wgpu backend must run, not skip.
export KILN_REQUIRE_WGPU=1
# It installed what reads traces, too.
export KILN_REQUIRE_PERFETTO=1
# And a browser, for pages of reports.
export KILN_REQUIRE_CHROMIUM=1
# NVRTC, too: CUDA kernels must compile. Tests that run them skip where there is no device.
case $(uname -m) in
    x86_64 | aarch64) export KILN_REQUIRE_NVRTC=1 KILN_NVRTC=$PWD/.cache/nvrtc ;;
esac
# One of six cases of the ONNX suite on the oracle and on wgpu, where all take long; 1 runs all of them.
export KILN_ONNX_PART=${KILN_ONNX_PART:-6}
# One of eight CUDA kernels is compiled; which ones follows from the commit. KILN_KERNEL_PART=1 compiles all.
export KILN_KERNEL_PART=${KILN_KERNEL_PART:-8}
export KILN_KERNEL_SEED=${KILN_KERNEL_SEED:-$((0x$(git rev-parse --short=7 HEAD 2>/dev/null | cut -c1-7 || echo 0)))}
# Memory that nothing has been written to holds NaN, so that reading it shows.
export KILN_POISON=1

# A clone is built once: what later builds would need takes as much of the disk as the executables.
if [ -n "${CI:-}" ]; then export CARGO_INCREMENTAL=0; fi

step() { echo "== $*"; "$@"; }

step cargo fmt --all --check
step cargo xtask header --check
step cargo xtask proto --check
step env PYTHONPATH=.cache/onnx python3 engine/onnx/src/schema/make.py --check engine/onnx/src/schema/schemas.txt
step cargo clippy --workspace --all-targets --quiet -- -D warnings
# The forms that only run plans: a build of the workspace has all features.
step env -u CARGO_RESOLVER_FEATURE_UNIFICATION cargo check -p kiln-backend-cuda -p kiln --lib --test plans_only --no-default-features \
    --features kiln-backend-cuda/run --quiet
step env -u CARGO_RESOLVER_FEATURE_UNIFICATION cargo check -p kiln-c-runtime --lib --quiet
# With the libraries of backends and plug-ins, which tests load at run time.
step cargo build --workspace --all-targets --quiet
if command -v cargo-nextest >/dev/null; then
    step cargo test --workspace --doc --quiet
    step cargo nextest run --workspace --status-level fail --no-fail-fast
else
    step cargo test --workspace --quiet
fi
# Instructions that every processor has: the tests above took those of this one.
step env KILN_CPU_LEVEL=base KILN_SAMPLE=4 cargo test --workspace --test op_suite --quiet -- cpu_backend
# Kernels write nowhere but into their own memory.
step env KILN_GUARD=1 KILN_SAMPLE=41 cargo test --workspace --test op_suite --quiet -- --exact wgpu_backend
# Whole models give what ONNX Runtime does.
step env PYTHONPATH=.cache/peer python3 benches/cpu/models.py --kiln target/debug/kiln --rounds 1 --seconds 0.02 --batch 1 lenet gpt2 quantized lstm
# CUDA kernels, in an emulator.
case $(uname -m) in
    x86_64 | aarch64) step bash scripts/emulate.sh ;;
esac
# The Python package: its wheel in an environment of its own.
step bash scripts/python.sh
step bash scripts/onnxruntime.sh
# Benches of host code, each once.
step cargo test --workspace --bench host --quiet
