#!/usr/bin/env bash
# Runs the suites on the CUDA device of this machine, in a folder that gpu_pack.sh has made: needs the NVIDIA driver, and
# NVRTC for kernels whose cubins were not packed. Arguments pick suites, by default all:
#   stream, memory, large, shapes, threads, flow, cancel, models, exports, tiles, attention, sources, bare, onnx, ops,
#   oracle (cases of ONNX Runtime), hostile (refusals and limits on the device), bounds (random shapes inside profiles),
#   (bare: a program of the runtime alone runs a plan with nothing but the driver)
#   plugins (every form of the example plug-ins in CUDA graphs, and what a source form costs beside an operator of the same kernel),
#   types (8-bit integers and floats, calibration, choice of types, 2:4 sparsity), formats (of inputs and outputs),
#   controls (refit, selection of tactics, determinism),
#   waits (what enqueue waits for, inputs that are consumed), reduced (accuracy in TF32, FP16, BF16),
#   sanitize (compute-sanitizer's memcheck and racecheck over a sample of every family of kernels, two minutes each at most;
#   WATCH="tiles flow" picks families, TOOLS=memcheck a tool; some hosts do not let it use the device: it says so).
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
    [oracle]="./oracle cuda --nocapture"
    [hostile]="./hostile on_cuda sizes_ --nocapture"
    [bounds]="./shape_bounds --nocapture"
    [waits]="waits"
    [cancel]="./cancel --nocapture --test-threads=1"
    [reduced]="./reduced_precision cuda --nocapture"
    [types]="types"
    [plugins]="plugins"
    [formats]="formats"
    [controls]="controls"
    [sanitize]="sanitize"
)

# Families of kernels that compute-sanitizer watches: the settings and the command of each. Every KILN_SAMPLE-th run is done.
declare -A watched=(
    [pointwise]="KILN_OPS=add,select,cast,clip ./op_suite cuda_backend"
    [rows]="KILN_OPS=softmax,layer_norm,cumulative,topk ./op_suite cuda_backend"
    [moves]="KILN_SAMPLE=5 KILN_OPS=concat,gather,scatter_elements,pad ./op_suite cuda_backend"
    [generic]="KILN_SAMPLE=31 KILN_OPS=matmul,attention ./op_suite cuda_backend"
    [tiles]="KILN_SAMPLE=61 ./tensor_cores agree"
    [attention]="KILN_SAMPLE=23 ./flash_attention agree"
    [recurrent]="KILN_SAMPLE=61 ./recurrent agree"
    [vectors]="KILN_SAMPLE=17 ./vectors agree"
    [flow]="./control_flow models_on_cuda"
)
picked=("$@")
[ ${#picked[@]} -gt 0 ] || picked=(stream waits memory large shapes threads flow cancel models reduced plugins types formats controls exports tiles attention sources bare onnx ops oracle
    hostile bounds sanitize)

# Builds engines, then runs them where no CUDA library but the driver can be found, and lists what was loaded.
bare() {
    local engine=logs/bare.kiln
    ./kiln build tests/data/digits/lenet_a.onnx --backend cuda --fp16 --shapes input:4x1x28x28 -o "$engine" || return 1
    env -u KILN_NVRTC -u LD_LIBRARY_PATH KILN_NVRTC=/nonexistent LD_DEBUG=files ./run_engine "$engine" 2>logs/bare.libraries || return 1
    grep -o 'calling init: .*' logs/bare.libraries | sort -u
    ! grep 'calling init' logs/bare.libraries | grep -E 'nvrtc|cublas|cudnn|cudart'
}

# What runs wait for, on this device.
waits() {
    ./cuda_consumed --nocapture --test-threads=1 && ./enqueue_waits --nocapture && ./consumed --nocapture --test-threads=1
}

# Each library by random inputs: all forms against the reference form, three runs a case, of which graphs hold all but the first.
plugins() {
    local library name result=0
    local -A shapes=([nms]="--shapes 6x4,6" [scatter_add]="--shapes 5x3,4,4x3")
    for library in plugins/libkiln_layers_*.so; do
        name=${library#plugins/libkiln_layers_}
        # shellcheck disable=SC2086 # the words of an option
        ./kiln plugin check "$PWD/$library" --cases 8 ${shapes[${name%.so}]:-} || result=1
    done
    ./layers a_kernel_costs --nocapture && return $result
}

types() {
    ./quantized cuda --nocapture && ./calibration cuda --nocapture && ./type_choice cuda --nocapture &&
        ./sparsity cuda --nocapture && ./fp8 cuda --nocapture
}

formats() {
    ./io_formats cuda --nocapture && ./direct_io cuda --nocapture
}

controls() {
    ./refit --nocapture && ./selection --nocapture && ./determinism --nocapture
}

# Each tool over each family, two minutes each; a family that takes longer is cut off and named, and fails only by what was found.
sanitize() {
    local tool family result=0 code
    # One thread at a time, or launches get lost on the tool; what racecheck does not follow has a barrier of its own.
    export KILN_POISON=0 KILN_NVRTC_OPTIONS=-DWATCHED
    if "$sanitizer" --tool memcheck ./cuda_consumed an_event_of 2>&1 | grep -q 'Device not supported'; then
        echo "skipped: this host does not let compute-sanitizer use the device"
        return 0
    fi
    for family in ${WATCH:-pointwise rows moves generic tiles attention recurrent vectors flow}; do
        # Kernels are compiled before anything is watched.
        # shellcheck disable=SC2086 # the words of the command
        env ${watched[$family]} --nocapture >"logs/sanitize-$family-plain.txt" 2>&1
        for tool in ${TOOLS:-memcheck racecheck}; do
            # shellcheck disable=SC2086 # the words of the command
            timeout -k 1 120 taskset -c "${CORE:-0}" env ${watched[$family]%%./*} "$sanitizer" --tool "$tool" --error-exitcode 9 \
                ./${watched[$family]#*./} --nocapture --test-threads=1 >"logs/sanitize-$family-$tool.txt" 2>&1
            code=$?
            echo "$family $tool: code $code, $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY|Device not supported' "logs/sanitize-$family-$tool.txt" | tail -1)"
            [ $code -eq 0 ] || [ $code -eq 124 ] || result=1
        done
    done
    return $result
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
