#!/bin/sh
# Reading snapshots: against Python's pickle.load on one that was recorded, and by itself on a generated one of 1 GiB.
#
#   benches/snapshot.sh [RECORDED.snapshot.pickle.gz]
#
# Figures are of one run: seconds by the wall clock, and the most memory that the process held.
set -eu
cd "$(dirname "$0")/.."
recorded=${1:-../shared/traces/h200/snap_long.snapshot.pickle.gz}
tool=${TRACETOOL:-target/release/tracetool}
[ -x "$tool" ] || cargo build --release
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

measure='
import os, subprocess, sys, time
start = time.perf_counter()
child = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(child.pid, 0)
seconds = time.perf_counter() - start
print(f"{sys.argv[1]:34}{seconds:8.2f} s{used.ru_maxrss / 1024:10.0f} MiB", "" if status == 0 else "FAILED")
'
gzip -dc "$recorded" > "$folder/recorded.pickle"
load='import pickle, sys; pickle.load(open(sys.argv[1], "rb"))'
echo "recorded: $(stat -c %s "$folder/recorded.pickle") bytes"
python3 -c "$measure" "Python, pickle.load" python3 -c "$load" "$folder/recorded.pickle"
python3 -c "$measure" "tracetool peak" "$tool" peak "$folder/recorded.pickle"
echo "generated: $(python3 benches/make_snapshot.py "$folder/large.pickle")"
python3 -c "$measure" "tracetool peak" "$tool" peak "$folder/large.pickle"
