#!/usr/bin/env bash
# Wall time and peak memory of whole commands against `igzip -dc` on the same file, in turn, and their ratios.
#
# usage: benches/end_to_end.sh TRACE.json.gz [RUNS]
# Needs igzip (Debian package isal) and GNU time (package time).
set -euo pipefail
cd "$(dirname "$0")/.."
trace=${1:?usage: benches/end_to_end.sh TRACE.json.gz [RUNS]}
runs=${2:-7}
command -v igzip >/dev/null || { echo "igzip is missing: apt-get install isal" >&2; exit 2; }
cargo build --quiet --locked --release
tracetool=${CARGO_TARGET_DIR:-target}/release/tracetool
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

once() { # NAME COMMAND...: appends "seconds kilobytes" to the list of that name
    local name=$1
    shift
    /usr/bin/time -f '%e %M' -o "$out/time" "$@" >/dev/null 2>&1
    cat "$out/time" >>"$out/$name"
}
median() { sort -n -k "$2,$2" "$out/$1" | awk -v c="$2" '{v[NR] = $c} END {print v[int((NR + 1) / 2)]}'; }

names=(igzip top peak timeline)
for _ in $(seq "$runs"); do
    once igzip igzip -dc "$trace"
    once top "$tracetool" top "$trace"
    once peak "$tracetool" peak "$trace"
    once timeline "$tracetool" timeline "$trace" -o "$out/timeline.svg"
done
floor=$(median igzip 1)
printf '%-10s %10s %10s %12s\n' command seconds 'x igzip' 'peak memory'
for name in "${names[@]}"; do
    awk -v n="$name" -v s="$(median "$name" 1)" -v f="$floor" -v m="$(median "$name" 2)" \
        'BEGIN {printf "%-10s %10.2f %10.2f %9.0f MB\n", n, s, s / f, m * 1024 / 1e6}'
done
