#!/usr/bin/env bash
# Instructions an event of whole commands, which no other load on the machine changes. The last figures are in
# benches/instructions.txt: `benches/instructions.sh | diff benches/instructions.txt -` shows what a change did.
#
# usage: benches/instructions.sh
# Needs valgrind, under which the scanner takes its AVX2 form.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "valgrind is missing: apt-get install valgrind" >&2; exit 2; }
cargo build --quiet --locked --release
tracetool=${CARGO_TARGET_DIR:-target}/release/tracetool
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
printf '%-12s %-10s %9s %12s\n' trace command events 'instr/event'
for trace in gpt_stack resnet; do
    file=testdata/$trace.pt.trace.json.gz
    events=$(gzip -dc "$file" | grep -c '"ph":')
    for command in top peak steps "timeline -o $out/a.svg"; do
        # shellcheck disable=SC2086
        valgrind --tool=callgrind --callgrind-out-file="$out/callgrind" \
            "$tracetool" $command --threads 1 "$file" >/dev/null 2>"$out/log"
        count=$(sed -n 's/.*Collected : //p' "$out/log")
        printf '%-12s %-10s %9d %12d\n' "$trace" "${command%% *}" "$events" $((count / events))
    done
done
