#!/usr/bin/env bash
# Random programs of loops and conditionals on one backend, as several processes with seeds of their own, for so long:
#     lazy_many.sh target/debug/deps/lazy_sequences-… cuda 16 300 [FIRST SEED]
# Prints what each process says, the programs that fail, and what none of them has covered. Logs stay in $LOGS.
set -euo pipefail
exe=$1 backend=$2 processes=$3 seconds=$4 first=${5:-1000}
LOGS=${LOGS:-$(mktemp -d)}
for ((i = 0; i < processes; i++)); do
    KILN_LAZY_SECONDS=$seconds KILN_LAZY_SEED=$((first + i * 1000000)) RUST_BACKTRACE=0 \
        timeout $((seconds + 120)) "$exe" "definition_says_on_$backend" --nocapture \
        >"$LOGS/$i.txt" 2>&1 &
done
wait || true
grep -h '^seeds ' "$LOGS"/*.txt || true
grep -h '^seed ' "$LOGS"/*.txt | cut -c1-300 || true
grep -h 'not covered:' "$LOGS"/*.txt | sort | uniq -c | awk -v n="$processes" '$1 == n { $1 = ""; print "in no process:" $0; k++ }
    END { print k + 0 " pairs covered by none" }'
echo "$(grep -l 'test result: ok' "$LOGS"/*.txt | wc -l) of $processes processes without a failure; logs in $LOGS"
[ "$(grep -l 'test result: ok' "$LOGS"/*.txt | wc -l)" = "$processes" ]
