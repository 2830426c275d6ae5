#!/usr/bin/env bash
# fuzz_run.sh SECONDS WORKERS [TARGET]...: runs the fuzz targets of this folder (made by fuzz_pack.sh) side by side, so many
# workers each, for so long. A worker goes on after a crash, a hang (20 s) or more than 2 GiB. Prints a line a worker and writes
# it to out/fuzz.txt; the inputs at fault go to out/crashes, new ones to out/corpus/TARGET. An input at fault is run again by
# itself, as on a busy machine a process may stand still for 20 s: only what fails again counts. Exits 1 if anything does.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

[[ ${1:-} =~ ^[0-9]+$ && ${2:-} =~ ^[0-9]+$ ]] || { echo "usage: fuzz_run.sh SECONDS WORKERS [TARGET]..." >&2; exit 2; }
seconds=$1 workers=$2
shift 2
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(ls targets)
OUT=${OUT:-$PWD/out}
mkdir -p "$OUT/crashes" "$OUT/logs"
: >"$OUT/fuzz.txt"
# The thread pool of a target would only fight for the cores with the other workers.
export RAYON_NUM_THREADS=${RAYON_NUM_THREADS:-2}

# worker TARGET NUMBER
worker() {
    local target=$1 number=$2 end=$((SECONDS + seconds)) units=0 peak=0 faults=0 again=0 round=0 done rss log corpus input
    corpus=$OUT/corpus/$target
    mkdir -p "$corpus"
    while [ $SECONDS -lt $end ] && [ $faults -lt 100 ]; do
        log=$OUT/logs/$target-$number-$round.txt
        "targets/$target" -seed=$((1 + number + 1000 * round)) -max_total_time=$((end - SECONDS)) -rss_limit_mb=2048 -timeout=20 \
            -max_len=65536 -reload=30 -print_final_stats=1 -artifact_prefix="$OUT/crashes/$target-$number-$round-" \
            "$corpus" "corpus/$target" >"$log" 2>&1 || {
            faults=$((faults + 1))
            input=$(ls "$OUT/crashes/$target-$number-$round-"* 2>/dev/null | head -1)
            timeout 60 "targets/$target" -rss_limit_mb=2048 -timeout=20 "${input:-/nothing}" >>"$log" 2>&1 || again=$((again + 1))
        }
        done=$(sed -n 's/^#\([0-9]*\).*/\1/p; s/^stat::number_of_executed_units: *//p' "$log" | tail -1)
        rss=$(sed -n 's/.* rss: \([0-9]*\)Mb.*/\1/p; s/^stat::peak_rss_mb: *//p' "$log" | sort -n | tail -1)
        units=$((units + ${done:-0}))
        [ "${rss:-0}" -gt "$peak" ] && peak=$rss
        # Only logs of faults are worth keeping.
        grep -qE 'ERROR: libFuzzer|panicked|SUMMARY' "$log" || rm -f "$log"
        round=$((round + 1))
    done
    echo "$target worker $number: $units units, peak $peak MiB, $faults faults, $again again" | tee -a "$OUT/fuzz.txt"
}

for target in "${targets[@]}"; do
    for number in $(seq "$workers"); do
        worker "$target" "$number" &
    done
done
wait
! grep -qv ' 0 again$' "$OUT/fuzz.txt"
