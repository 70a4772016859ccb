#!/usr/bin/env bash
# tracetool against everything else that reads the same trace, in one run: wall time, peak memory, ratios to `igzip -dc`.
#
# usage: benches/compare.sh TRACE.json.gz [RUNS]
# Medians of RUNS (5) runs in turn for what takes under ten seconds, one run for the rest. Needs igzip (Debian package
# isal) and python3 with venv; the Python peers are installed into a temporary environment (WITHOUT_PEERS=1 leaves them
# out). VeloQ is measured where it is installed (`cargo install veloq`).
set -euo pipefail
cd "$(dirname "$0")/.."
trace=$(realpath "${1:?usage: benches/compare.sh TRACE.json.gz [RUNS]}")
command -v igzip >/dev/null || { echo "igzip is missing: apt-get install isal" >&2; exit 2; }
cargo build --quiet --locked --release
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
python=
if [ -z "${WITHOUT_PEERS:-}" ]; then
    python3 -m venv "$out/env"
    python=$out/env/bin/python
    "$python" -m pip install --quiet orjson 'HolisticTraceAnalysis==0.5.0' 'torch_tb_profiler==0.4.3' setuptools
fi
python3 - "$trace" "${2:-5}" "$out" "${CARGO_TARGET_DIR:-target}/release/tracetool" "$python" <<'PYTHON'
import os, pathlib, shutil, statistics, subprocess, sys, time

trace, runs, out, tracetool, python = sys.argv[1], int(sys.argv[2]), *sys.argv[3:6]

# HTA and torch_tb_profiler read folders.
folder = pathlib.Path(out) / "trace"
folder.mkdir()
(folder / "host_1.1.pt.trace.json.gz").symlink_to(trace)

HTA = f"""
from hta.trace_analysis import TraceAnalysis
t = TraceAnalysis(trace_files={{0: {trace!r}}}, trace_dir={str(folder)!r})
t.get_gpu_kernel_breakdown(visualize=False)
"""
TB = f"""
import sys
from unittest import mock
from torch_tb_profiler import io
from torch_tb_profiler.profiler import RunLoader
name = "host_1.1.pt.trace.json.gz"
run = RunLoader("run", {str(folder)!r}, io.Cache()).load()
profile = next(iter(run.profiles.values()))
print(profile.get_memory_stats() is not None)
"""
ORJSON = f"import gzip, orjson; orjson.loads(gzip.open({trace!r}).read())"

commands = [
    ("igzip -dc", ["igzip", "-dc", trace]),
    ("tracetool top", [tracetool, "top", trace]),
    ("tracetool peak", [tracetool, "peak", trace]),
    ("tracetool timeline -o", [tracetool, "timeline", trace, "-o", f"{out}/timeline.svg"]),
    ("zcat", ["zcat", trace]),
]
if shutil.which("veloq"):
    commands.append(("veloq summary", ["veloq", "summary", trace]))
if python:
    commands += [
        ("orjson, no analysis", [python, "-c", ORJSON]),
        ("HTA 0.5.0, kernels", [python, "-c", HTA]),
        ("torch_tb_profiler 0.4.3", [python, "-c", TB]),
    ]


def once(name, command):
    """Seconds and bytes of one run."""
    with open(os.path.join(out, "errors"), "w+") as errors:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        if status:
            errors.seek(0)
            lines = errors.read().strip().splitlines() or [f"status {status}"]
            print(f"{name} failed: {lines[-1]}", file=sys.stderr)
            return None
    return seconds, usage.ru_maxrss * 1024


figures = {name: [] for name, _ in commands}
for turn in range(runs):
    for name, command in commands:
        if turn > 0 and (not figures[name] or figures[name][0][0] > 10):
            continue
        figure = once(name, command)
        if figure:
            figures[name].append(figure)

floor = statistics.median(s for s, _ in figures["igzip -dc"])
print(f"| command | seconds | × igzip | peak memory | runs |\n|---|---:|---:|---:|---:|")
for name, got in figures.items():
    if got:
        seconds, memory = (statistics.median(column) for column in zip(*got))
        print(f"| {name} | {seconds:.2f} | {seconds / floor:.1f} | {memory / 1e6:,.0f} MB | {len(got)} |")
PYTHON
