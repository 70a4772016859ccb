#!/usr/bin/env bash
# The gate from end to end, on two traces of one training step: with scaled_dot_product_attention, and with attention
# written out. Run it as `examples/ci/run.sh TRACETOOL`.
set -euo pipefail
tracetool=$(realpath "${1:?the tracetool to run}")
cd "$(dirname "$0")"
flash=../../testdata/gpt_flash.pt.trace.json.gz
naive=../../testdata/gpt_naive.pt.trace.json.gz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
baseline=$work/memory-baseline.json

# Whether a command ends with this code.
ends_with() {
    local want=$1 got=0
    shift
    "$@" >"$work/out" 2>"$work/err" || got=$?
    [ "$got" -eq "$want" ] && return
    cat "$work/out" "$work/err"
    echo "exit code $got, not $want: $*"
    exit 1
}
says() { grep -qF -- "$1" "$work/out" || { cat "$work/out"; echo "not said: $1"; exit 1; }; }

echo "once, on a commit that is good: the baseline, which is committed"
"$tracetool" baseline "$flash" -o "$baseline"

echo "on every change: the same program passes"
ends_with 0 "$tracetool" check "$flash" --baseline "$baseline"

echo "attention written out does not, and is named"
ends_with 1 "$tracetool" check "$naive" --baseline "$baseline"
says "1,882,189,824 bytes"
says "By category: attention +1.82 GiB"

echo "the limits of tracetool.toml hold for what they name"
ends_with 1 "$tracetool" check "$naive" --baseline "$baseline" --format csv
says "category attention"

echo "JUnit's XML is read by others"
ends_with 1 "$tracetool" check "$naive" --baseline "$baseline" --format junit -o "$work/memory.xml"
if command -v python3 >/dev/null; then
    python3 - "$work/memory.xml" <<'PYTHON'
import sys, xml.etree.ElementTree as ET
suites = ET.parse(sys.argv[1]).getroot()
failures = [f.get("message") for f in suites.iter("failure")]
assert suites.tag == "testsuites" and int(suites.get("failures")) == len(failures) > 0
assert any("1,882,189,824 bytes" in message for message in failures), failures
PYTHON
fi

echo "the GitHub Action annotates, and writes the summary of the job"
export TRACETOOL=$tracetool TRACES="../../testdata/gpt_nai*.pt.trace.json.gz" BASELINE=$baseline
export JUNIT=$work/action.xml GITHUB_STEP_SUMMARY=$work/summary.md
ends_with 1 ../../action/check.sh
says "::error title=gpt_naive.pt.trace.json.gz%3A cuda%3A0%3A allocated peak"
grep -qF "attention" "$work/summary.md"
[ -s "$work/action.xml" ]

echo "... and ends with 2, and says why, where the input is wrong"
TRACES=no/such/trace.json.gz ends_with 2 ../../action/check.sh
grep -qF "no/such/trace.json.gz" "$work/err"

echo "a rise that is wanted: the baseline is written anew and then passes"
ends_with 0 "$tracetool" check "$naive" --baseline "$baseline" --update
ends_with 0 "$tracetool" check "$naive" --baseline "$baseline"
