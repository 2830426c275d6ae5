#!/usr/bin/env bash
# Runs the suites on the CUDA device of this machine, in a folder that gpu_pack.sh has made: needs the NVIDIA driver, and
# NVRTC for kernels whose cubins were not packed. Arguments pick suites: ops, onnx, models, shapes, threads (all by default).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

export KILN_REQUIRE_CUDA=1 KILN_POISON=1
export KILN_KERNEL_CACHE=${KILN_KERNEL_CACHE:-$PWD/kernels}
if [ -z "${KILN_NVRTC:-}" ]; then
    # A wheel of NVRTC, if Python has one.
    found=$(python3 -c '
import glob, sys
print(next((f for p in sys.path for f in sorted(glob.glob(p + "/nvidia/**/libnvrtc.so.1[23]", recursive=True))), ""))
' 2>/dev/null)
    [ -n "$found" ] && export KILN_NVRTC=$found
fi

failed=()
suite() {
    local name=$1
    shift
    [ ${#picked[@]} = 0 ] || [[ " ${picked[*]} " == *" $name "* ]] || return 0
    echo "== $name: $*"
    local start=$SECONDS
    "$@" || failed+=("$name")
    echo "== $name took $((SECONDS - start)) s"
}

picked=("$@")
[ -d .cache ] || tar -xzf onnx-suite.tar.gz
./kiln backends || true
suite ops ./op_suite cuda_backend --nocapture
suite models ./trained_models on_cuda --nocapture
suite onnx ./onnx_suite cuda_ --nocapture --test-threads=2
suite shapes ./new_shapes --nocapture
suite threads ./threads --nocapture
[ ${#failed[@]} = 0 ] && { echo "== all pass"; exit 0; }
echo "== failed: ${failed[*]}"
exit 1
