#!/usr/bin/env bash
# Runs the suites on the CUDA device of this machine, in a folder that gpu_pack.sh has made: needs the NVIDIA driver, and
# NVRTC for kernels whose cubins were not packed. Arguments pick suites, by default all:
#   stream, memory, large, shapes, threads, flow, models, exports, tiles, sources, bare, onnx, ops,
#   (bare: a program of the runtime alone runs a plan with nothing but the driver)
#   sanitize (compute-sanitizer's memcheck over models with loops).
# Each suite's output is in logs/SUITE.txt. `JOBS=8` runs so many at a time: times mean nothing then, results do.
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
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)

declare -A suites=(
    [stream]="./cuda_stream --nocapture"
    [memory]="./cuda_memory --nocapture"
    [large]="./cuda_large --nocapture"
    [sources]="./sources --nocapture"
    [bare]="bare"
    [shapes]="./new_shapes --nocapture"
    [threads]="./threads --nocapture"
    [flow]="./control_flow cuda --nocapture"
    [models]="./trained_models cuda --nocapture"
    [exports]="./exports cuda --nocapture"
    [tiles]="./tensor_cores agree --nocapture"
    [attention]="./flash_attention agree --nocapture"
    [onnx]="./onnx_suite cuda_ --nocapture --test-threads=2"
    [ops]="./op_suite cuda_backend --nocapture"
    [sanitize]="$sanitizer --tool memcheck --error-exitcode 9 ./control_flow models_on_cuda --nocapture"
)
picked=("$@")
[ ${#picked[@]} -gt 0 ] || picked=(stream memory large shapes threads flow models exports tiles sources bare onnx ops sanitize)

# Builds engines, then runs them where no CUDA library but the driver can be found, and lists what was loaded.
bare() {
    local engine=logs/bare.kiln
    ./kiln build tests/data/digits/lenet_a.onnx --backend cuda --fp16 --shapes input:4x1x28x28 -o "$engine" || return 1
    env -u KILN_NVRTC -u LD_LIBRARY_PATH KILN_NVRTC=/nonexistent LD_DEBUG=files ./run_engine "$engine" 2>logs/bare.libraries || return 1
    grep -o 'calling init: .*' logs/bare.libraries | sort -u
    ! grep 'calling init' logs/bare.libraries | grep -E 'nvrtc|cublas|cudnn|cudart'
}

suite() {
    local name=$1 start=$SECONDS result=passes
    # shellcheck disable=SC2086 # the words of the command
    ${suites[$name]} >"logs/$name.txt" 2>&1 || result=FAILS
    echo "$result" >"logs/$name.result"
    echo "== $name $result after $((SECONDS - start)) s: $(grep -E 'pass|^test result|ERROR SUMMARY' "logs/$name.txt" | tail -3 | tr '\n' ';')"
}

mkdir -p logs
rm -f logs/*.result
[ -d .cache ] || { mkdir -p .cache && tar -xJf onnx-suite.tar.xz -C .cache; }
./kiln backends || true
for name in "${picked[@]}"; do
    [ -n "${suites[$name]:-}" ] || { echo "gpu_suite: no suite \"$name\"; there are ${!suites[*]}" >&2; exit 2; }
    [ "$name" != sanitize ] || [ -n "$sanitizer" ] || { echo "== sanitize skipped: no compute-sanitizer"; continue; }
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-1}" ]; do wait -n; done
    suite "$name" &
done
wait
failed=$(grep -l FAILS logs/*.result 2>/dev/null | sed 's|logs/||; s|\.result||' | tr '\n' ' ')
[ -z "$failed" ] && { echo "== all pass"; exit 0; }
for name in $failed; do
    echo "---- $name"
    tail -n 40 "logs/$name.txt"
done
echo "== failed: $failed"
exit 1
