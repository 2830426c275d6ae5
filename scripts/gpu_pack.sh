#!/usr/bin/env bash
# Gathers what runs on a GPU host without a Rust toolchain into target/gpu: the test executables of the op suite, the ONNX
# suite and the trained models, the backends' libraries, the `kiln` command, their data, and cubins that were compiled here.
# Copy the folder there and run ./gpu_suite.sh in it. `PROFILE=dev` packs a debug build, which is there sooner.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PROFILE=${PROFILE:-release}
PACK=target/gpu
LIMIT=$((64 << 20))
TESTS=(op_suite onnx_suite trained_models new_shapes threads)

flags=(--profile "$PROFILE")
cargo build --quiet "${flags[@]}" -p kiln-backend-cuda -p kiln-cli
built=$(cargo test --no-run --message-format=json --quiet "${flags[@]}" -p kiln-tests "${TESTS[@]/#/--test=}" |
    python3 -c '
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m.get("executable") and "test" in m["target"]["kind"]:
        print(m["target"]["name"], m["executable"])')

rm -rf "$PACK"
mkdir -p "$PACK/tests/onnx" "$PACK/tests/ops" "$PACK/docs"
while read -r name executable; do
    cp "$executable" "$PACK/$name"
done <<<"$built"
folder=target/$([ "$PROFILE" = dev ] && echo debug || echo "$PROFILE")
cp "$folder"/libkiln_backend_cuda.so "$folder/kiln" "$PACK"
find "$PACK" -maxdepth 1 -type f -exec strip --strip-debug {} +
cp -r tests/data "$PACK/tests/data"
cp -r tests/onnx/. "$PACK/tests/onnx"
cp -r tests/ops/. "$PACK/tests/ops"
tar -czf "$PACK/onnx-suite.tar.gz" .cache/onnx-suite-*
if [ -n "${KILN_KERNEL_CACHE:-}" ] && [ -d "$KILN_KERNEL_CACHE" ]; then
    cp -r "$KILN_KERNEL_CACHE" "$PACK/kernels"
fi
cp scripts/gpu_suite.sh "$PACK"

size=$(du -sb "$PACK" | cut -f1)
echo "$PACK: $((size >> 20)) MiB"
[ "$size" -le $LIMIT ] || { echo "gpu_pack: more than $((LIMIT >> 20)) MiB; PROFILE=release is smaller" >&2; exit 1; }
