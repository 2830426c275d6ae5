#!/usr/bin/env bash
# Runs a command with an emulated CUDA device, on a machine without a GPU: kernels are compiled to PTX by NVRTC, and an interpreter
# runs them (tests/emulator). Results are those of the kernels; times mean nothing. Without arguments a sample of the tests of CUDA
# runs, drawn by KILN_EMULATOR_SEED (another order of warps); KILN_SAMPLE=1 takes all of the op suite and of the tiles, for hours.
#   scripts/emulate.sh cargo test --workspace --test op_suite cuda_backend
#   KILN_OPS=dft scripts/emulate.sh cargo test --workspace --test op_suite cuda_backend
# KILN_EMULATED_CAPABILITY=80 (89, 100, 120) makes it another GPU than one of compute capability 9.0.
#   scripts/emulate.sh target/debug/kiln run model.onnx --backend cuda
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
FOLDER=$PWD/target/emulated
NVRTC=$PWD/.cache/nvrtc
[ -f "$NVRTC/libnvrtc.so.13" ] || { echo "emulate: $NVRTC is missing: run scripts/setup.sh" >&2; exit 1; }

# Of the same features as all tests.
cargo build --workspace --all-targets --quiet
mkdir -p "$FOLDER"
FLAGS=(-std=gnu11 -O1 -g -Wall -Wextra -Werror -shared -fPIC)
cc "${FLAGS[@]}" -o "$FOLDER/libcuda.so" tests/fake_driver/*.c -lpthread -ldl
cc "${FLAGS[@]}" -o "$FOLDER/libnvrtc.so" tests/fake_compiler/nvrtc.c -ldl
ln -sf "$NVRTC"/libnvrtc-builtins.so.* "$FOLDER"

export KILN_CUDA_DRIVER=$FOLDER/libcuda.so KILN_EMULATOR=$PWD/target/debug/libkiln_emulator.so
export KILN_NVRTC=$FOLDER/libnvrtc.so KILN_EMULATED_NVRTC=$NVRTC/libnvrtc.so.13
export KILN_KERNEL_CACHE=$FOLDER/kernels KILN_REQUIRE_CUDA=1 KILN_POISON=1
export KILN_EMULATOR_SEED=${KILN_EMULATOR_SEED:-1}
if [ $# -gt 0 ]; then
    exec "$@"
fi
echo "KILN_EMULATOR_SEED=$KILN_EMULATOR_SEED"

run() { echo "== $*"; cargo test --workspace --quiet --test "$1" -- "${@:2}"; }
# Every operator, and every family of tiles.
KILN_SAMPLE=${KILN_SAMPLE:-97} run op_suite --exact cuda_backend
for tiles in tensor_cores flash_attention recurrent; do
    KILN_SAMPLE=${KILN_SAMPLE:-199} run "$tiles" agree_with_the_oracle
done
# The kernels of GPUs without tensor copies.
KILN_EMULATED_CAPABILITY=80 KILN_SAMPLE=${KILN_SAMPLE:-499} run tensor_cores agree_with_the_oracle
# Control flow on the device, formats, 8 and 4 bits, transforms, weights that are streamed, engines for other architectures.
run network_layers --exact on_cuda
run host_layers cuda
run debug_tensors --exact states_on_cuda
run io_formats cuda
KILN_QUANTIZED_CASES=${KILN_QUANTIZED_CASES:-12} run quantized cuda
run weight_codes cuda
run fourier short_transforms frames_of directions_axes
run streamed_weights
run shared_weights engines_on_one_device
run emulated
# Channels that are padded to whole vectors.
run padded_channels
# Samples of the chapters: conditionals, loops, empty tensors, an implicit batch, the inspector, 8-bit layers.
run examples samples::conditionals samples::loops samples::tensors samples::a_batch samples::an_inspector samples::ranges
# Plug-ins: guards around the memory of kernels, source and native forms in graphs, kernels of Kiln's own as source forms.
run plugin on_an_emulated_gpu
run layers a_native_form every_kernel_agrees outputs_in_place a_kernel_costs
run streams_beside
# Addresses that change from run to run.
run moved_memory
# Switches of shapes and profiles; KILN_SWITCHES=10000 makes all of them.
run shape_kernels ten_thousand
# Control flow in graphs of the caller's.
run captured_flow
# Builds that are cancelled at their steps.
run watching builds_are_cancelled_on_cuda
# Refits by every way, in f32, f16 and on codes.
run refit there_and_back_by_every_way on_their_devices
# Values of ONNX Runtime in memory of the device.
bash scripts/onnxruntime.sh -k device_memory
