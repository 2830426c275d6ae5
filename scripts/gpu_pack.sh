#!/usr/bin/env bash
# Gathers what runs on a GPU host without a Rust toolchain into target/gpu: test executables, the CUDA backend's library, the
# `kiln` command, the GPU bench, their data, and cubins that were compiled here (KILN_KERNEL_CACHE). Copy the folder there and
# run ./gpu_suite.sh in it. `PROFILE=dev` packs a debug build, which is there sooner; `BUILT=1` takes what
# `cargo build --workspace --all-targets` has left there, and builds nothing; `OUT` is another folder than target/gpu.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PROFILE=${PROFILE:-release}
PACK=${OUT:-target/gpu}
LIMIT=$((64 << 20))
TESTS=(op_suite onnx_suite trained_models exports control_flow new_shapes threads enqueue_waits consumed reduced_precision
    cuda_stream cuda_consumed cuda_memory cuda_large sources tensor_cores flash_attention recurrent vectors family
    branches slices branch_sizes flow_runs laziness lazy_sequences unrolled host_layers cancel
    oracle:cuda_agrees hostile:on_cuda shape_bounds:valid_runs
    layers:a_kernel_costs quantized calibration type_choice sparsity fp8 io_formats:cuda direct_io selection shape_kernels pools examples:a_lenet_of_the_api determinism refit:there_and_back refit_speed moved_memory captured_flow shared_weights padded_channels controls:addresses_that_change)
FOLDER=target/$([ "$PROFILE" = dev ] && echo debug || echo "$PROFILE")

rm -rf "$PACK"
mkdir -p "$PACK/tests"
if [ -z "${BUILT:-}" ]; then
    cargo build --quiet --profile "$PROFILE" --workspace --all-targets
fi
# The newest executable of a name that has a test like this: older ones are of other features or versions, others of other crates.
newest() {
    find "$FOLDER/deps" -maxdepth 1 -type f -executable -name "$1-*" -printf '%T@ %p\n' | sort -rn | cut -d' ' -f2 |
        while read -r file; do
            if [ -z "$2" ] || grep -q "$2" <<<"$("$file" --list)"; then echo "$file" && break; fi
        done
}
for test in "${TESTS[@]}"; do
    name=${test%%:*}
    file=$(newest "$name" "$([ "$name" = "$test" ] || echo "${test#*:}")")
    [ -n "$file" ] || { echo "gpu_pack: $name is not built" >&2; exit 1; }
    strip --strip-debug -o "$PACK/$name" "$file"
done
for name in libkiln_backend_cuda.so kiln examples/run_engine; do
    strip --strip-debug -o "$PACK/${name##*/}" "$FOLDER/$name"
done
# Example plug-ins, built as plugins/README.md says.
mkdir "$PACK/plugins"
for source in plugins/examples/{swish/swish.c,nms/nms.c,scatter_add/scatter_add.c,roll/roll.c,compact/compact.cpp}; do
    name=$(basename "${source%.*}")
    compiler=cc standard=c11
    [ "${source##*.}" = c ] || compiler=c++ standard=c++17
    $compiler -std=$standard -shared -fPIC -fvisibility=hidden -I plugins/include -o "$PACK/plugins/libkiln_layers_$name.so" "$source" -lm -ldl
done
strip --strip-debug -o "$PACK/plugins/libkiln_layers_row_norm.so" "$FOLDER/libkiln_layers_row_norm.so"
cp -r tests/data tests/onnx tests/ops tests/oracle "$PACK/tests"
cp -r benches/gpu "$PACK/bench"
# The cases in scope; most of the older suite's files are those of the newest, which a large dictionary finds.
for version in 1.23.2 1.19.1; do
    sed "s|^|onnx-suite-$version/|" "tests/onnx/scope-$version.txt"
done | { cat && echo oracle; } | XZ_OPT='-6 --lzma2=dict=128MiB' tar -cJf "$PACK/onnx-suite.tar.xz" -C .cache -T -
if [ -n "${KILN_KERNEL_CACHE:-}" ] && [ -d "$KILN_KERNEL_CACHE" ]; then
    cp -r "$KILN_KERNEL_CACHE" "$PACK/kernels"
fi
cp scripts/gpu_suite.sh "$PACK"

size=$(du -sb "$PACK" | cut -f1)
echo "$PACK: $((size >> 20)) MiB"
[ "$size" -le $LIMIT ] || echo "gpu_pack: more than $((LIMIT >> 20)) MiB; PROFILE=release is smaller, tar -cJ as well" >&2
