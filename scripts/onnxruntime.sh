#!/usr/bin/env bash
# Runs the tests of the execution provider for ONNX Runtime, with the library that cargo built into target/debug. KILN_ORT names
# a folder with another version of ONNX Runtime (pip install --no-deps --target FOLDER onnxruntime==VERSION).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=${KILN_ORT:+$KILN_ORT:}$PWD/.cache/peer KILN_PLUGIN_PATH=$PWD/target/debug/libkiln_backend_wgpu.so
exec .cache/python/bin/python -m pytest -q -p no:cacheprovider --rootdir integrations/onnxruntime/tests \
    "$@" integrations/onnxruntime/tests
