#!/usr/bin/env bash
# Packs the wheel of what the workspace has built, with the tests of the package that need a GPU, into a folder: run.sh there needs
# Python with PyTorch and NumPy, a GPU, and nothing else. Usage: pack.sh FOLDER [TARGET-FOLDER]
set -euo pipefail
OUT=$(realpath -m "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
BUILT=${2:-target/debug}
LIMIT=$((20 << 20))

WORK=$(mktemp --directory)
trap 'rm -rf "$WORK"' EXIT
mkdir -p "$WORK"/{built,pack/{python/tests/tensorrt,tests/data,target/debug,integrations/onnxruntime}} "$OUT"
for name in lib_kiln.so libkiln_backend_cuda.so; do
    strip --strip-debug -o "$WORK/built/$name" "$BUILT/$name"
done
# The provider of ONNX Runtime stands where its tests look for it.
strip --strip-debug -o "$WORK/pack/target/debug/libkiln_ort.so" "$BUILT/libkiln_ort.so"
cp "$WORK/built/libkiln_backend_cuda.so" "$WORK/pack/target/debug"
cp -r integrations/onnxruntime/tests "$WORK/pack/integrations/onnxruntime"
python3 python/pack.py "$WORK/built" "$WORK/pack" >/dev/null
cp -r python/tests/gpu python/tests/conftest.py python/tests/test_torch.py "$WORK/pack/python/tests"
cp -r python/tests/tensorrt/scripts "$WORK/pack/python/tests/tensorrt"
cp -r tests/data/digits "$WORK/pack/tests/data"
git describe --always --dirty >"$WORK/pack/commit"
XZ_OPT='-6 --lzma2=dict=64MiB' tar -cJf "$OUT/pack.tar.xz" -C "$WORK/pack" .
cp python/tests/gpu/run.sh "$OUT"
size=$(stat -c %s "$OUT/pack.tar.xz")
echo "$OUT: $((size >> 10)) KiB"
[ "$size" -le $LIMIT ] || { echo "pack: more than $((LIMIT >> 20)) MiB" >&2; exit 1; }
