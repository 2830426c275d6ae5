#!/usr/bin/env bash
# Runs what pack.sh has packed beside this file, on a machine with a GPU: a line for each check, and the output of those that fail
# behind them. All is done in 90 seconds. python.log has the same, in the folder of the variable OUT. PYTHON is another program
# than python3, KILN_BACKEND another backend than cuda.
set -uo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PYTHON=${PYTHON:-python3}
LIMIT=${LIMIT:-72}
WORK=$(mktemp --directory /tmp/kiln-python.XXXXXX)
trap 'rm -rf "$WORK"' EXIT
LOG=$WORK/python.log
START=$SECONDS
tar -xJf "$HERE/pack.tar.xz" -C "$WORK" || exit 1
cd "$WORK"
"$PYTHON" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile --target site ./*.whl || exit 1
export PYTHONPATH=$WORK/site KILN_BACKEND=${KILN_BACKEND:-cuda} KILN_KERNEL_CACHE=$WORK/kernels PYTHONDONTWRITEBYTECODE=1
mkdir -m 700 kernels lib results
# Programs that open libcudart by its plain name find that of PyTorch's packages.
cudart=$("$PYTHON" -c 'import glob, sys; print(*[f for p in sys.path for f in glob.glob(p + "/nvidia/*/lib/libcudart.so.*")][:1])')
[ -n "$cudart" ] && ln -s "$cudart" lib/libcudart.so

TESTS=$WORK/python/tests
DIGITS=$WORK/tests/data/digits
NAMES=()
# check NAME COMMAND…: runs a command beside the others.
check() {
    local name=$1 began=$SECONDS
    shift
    NAMES+=("$name")
    mkdir "results/$name"
    (
        timeout --kill-after=3 "$LIMIT" "$@" >"results/$name/text" 2>&1
        echo "$? $((SECONDS - began))" >"results/$name/end"
    ) &
}
# A program for TensorRT, by install(); those with buffers of CUDA's packages take the real ones here.
script() {
    local name
    for name in "$@"; do
        check "script:$name" env LD_LIBRARY_PATH="$WORK/lib:${LD_LIBRARY_PATH:-}" \
            "$PYTHON" -m kiln.tensorrt "$TESTS/tensorrt/scripts/$name.py" "$DIGITS" "$WORK/results/script:$name"
    done
}

check backends "$PYTHON" -m kiln backends
check same_bits "$PYTHON" "$TESTS/gpu/same_bits.py" "$DIGITS/lenet_a.onnx" "$DIGITS/digits_test.npz"
for name in torch_runner cuda_graph half_exporter network_of_torch refit_and_allocate host_pointers; do
    check "torch:$name" "$PYTHON" -m kiln.tensorrt "$TESTS/gpu/$name.py" "$DIGITS/lenet_a.onnx" "$DIGITS/digits_test.npz"
done
script cuda_python common_runtime sample_buffers graph_capture cupy_runner ctypes_runtime
script inspector timing_cache progress parser_errors streams
check pytest "$PYTHON" -m pytest -q -p no:cacheprovider -c /dev/null --rootdir "$TESTS" "$TESTS/test_torch.py"
# The provider of ONNX Runtime whose values are on the device.
check onnxruntime env KILN_REQUIRE_CUDA=1 "$PYTHON" -m pytest -q -p no:cacheprovider \
    -c /dev/null --rootdir integrations/onnxruntime/tests integrations/onnxruntime/tests/test_device_memory.py
wait

{
    echo "commit $(cat commit), $("$PYTHON" -c 'import torch; print("PyTorch", torch.__version__, torch.cuda.get_device_name() if torch.cuda.is_available() else "without a GPU")')"
    for name in "${NAMES[@]}"; do
        read -r status seconds <"results/$name/end"
        if [ "$status" = 0 ]; then verdict=PASS; else verdict="FAIL($status)"; fi
        echo "$verdict $name ${seconds} s: $(tail -n 1 "results/$name/text" | cut -c1-200)"
    done
    echo "all in $((SECONDS - START)) s"
    cat results/same_bits/text
    cat results/backends/text
    for name in "${NAMES[@]}"; do
        read -r status _ <"results/$name/end"
        [ "$status" = 0 ] || { echo "--- $name" && tail -n 60 "results/$name/text"; }
    done
} | tee "$LOG"
[ -z "${OUT:-}" ] || cp "$LOG" "$OUT/python.log"
! grep -q '^FAIL' "$LOG"
