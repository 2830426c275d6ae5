#!/usr/bin/env bash
# attack_run.sh hostile|bounds|signals COUNT WORKERS: a long run of a test of this folder (made by fuzz_pack.sh), cut into so many
# shares that run side by side:
#   hostile  COUNT mutations of every exporter's model: a result or an error, within 20 s and 2 GiB
#   bounds   COUNT random programs of shape arithmetic: planned memory holds, valid runs are not refused
#   signals  COUNT moments of a build at which a signal comes: no old file, no engine and no time is lost
# FIRST=n sets the first seed (1). Prints a line a share and writes it to out/KIND.txt; output goes to out/logs, models at fault
# to out/crashes. Exits 1 if a share fails.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() { echo "usage: attack_run.sh hostile|bounds|signals COUNT WORKERS" >&2; exit 2; }
[[ ${2:-} =~ ^[0-9]+$ && ${3:-} =~ ^[1-9][0-9]*$ ]] || usage
kind=$1 count=$2 workers=$3
OUT=${OUT:-$PWD/out}
mkdir -p "$OUT/crashes" "$OUT/logs"
: >"$OUT/$kind.txt"
export KILN_HOSTILE_KEEP=$OUT/crashes RAYON_NUM_THREADS=${RAYON_NUM_THREADS:-2}
case $kind in
    hostile) test="./files mutated_models" name=KILN_HOSTILE count=$((count * $(ls tests/data/exports/*.onnx | wc -l))) ;;
    bounds) test="./shape_bounds" name=KILN_BOUNDS ;;
    signals) test="./files signals_lose" name=KILN_SIGNALS ;;
    *) usage ;;
esac

# share NUMBER
share() {
    local each=$(((count + workers - 1) / workers)) start=$SECONDS log=$OUT/logs/$kind-$1.txt state=ok
    env "$name=$each" "${name}_SEED=$((${FIRST:-1} + each * $1))" $test --nocapture >"$log" 2>&1 || state=FAILED
    echo "$kind share $1: $state, $each from seed $((${FIRST:-1} + each * $1)), $((SECONDS - start)) s; $(grep -E 'runs|moments|mutations' "$log" | tail -1)" |
        tee -a "$OUT/$kind.txt"
}

for number in $(seq 0 $((workers - 1))); do
    share "$number" &
done
wait
! grep -q FAILED "$OUT/$kind.txt"
