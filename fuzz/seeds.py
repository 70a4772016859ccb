#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets into corpus/, from testdata/ and the forms that the other inputs have.

Small ones: of each trace an event of each kind, of each snapshot a few blocks and entries. Run it anywhere, again at will.
"""

import gzip
import hashlib
import json
import pickle
import zlib
from pathlib import Path

FUZZ = Path(__file__).resolve().parent
TESTDATA = FUZZ.parent / "testdata"


def seed(target, data):
    folder = FUZZ / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


def inflated(path):
    data = path.read_bytes()
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def kinds_of_events(document):
    """The members beside the events, and the first two events of each kind."""
    seen, events = {}, []
    for event in document["traceEvents"]:
        kind = (event.get("ph"), event.get("cat"), event["name"] if event.get("ph") == "M" or "[" in event.get("name", "") else "")
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= 2:
            events.append(event)
    return {**document, "traceEvents": events}


def traces():
    for path in sorted(TESTDATA.glob("*.pt.trace.json.gz")):
        text = inflated(path)
        # The start as the exporter wrote it, broken off; it is also what is not JSON in its names.
        texts = [text[:3000], text[len(text) // 2 :][:2000]]
        try:
            document = kinds_of_events(json.loads(text, strict=False))
        except ValueError:
            at = text.find(b'"traceEvents"')
            texts.append(b"{" + text[at:][:6000])
        else:
            texts.append(json.dumps(document, indent=2).encode())
            texts.append(json.dumps(document["traceEvents"], separators=(",", ":")).encode())
        for text in texts:
            yield text[:12000]


def cut(value, depth=0):
    """A snapshot with little in each of its lists."""
    if isinstance(value, dict):
        return {k: cut(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(cut(v, depth + 1) for v in value[: 12 if depth < 3 else 3])
    return value


def snapshots():
    for path in sorted(TESTDATA.glob("*.snapshot.pickle.gz")):
        # Written by this project: nothing else may be unpickled.
        small = cut(pickle.loads(inflated(path)))
        for protocol in range(6):
            yield pickle.dumps(small, protocol)


LOGS = [
    """timestamp, index, name, memory.used [MiB], utilization.gpu [%], memory.total [MiB]
2026/12/01 03:08:25.839, 0, NVIDIA H200, 841 MiB, 22 %, 143771 MiB
2026/12/01 03:08:25.942, 1, NVIDIA H200, [N/A], [Not Supported], 143771 MiB
""",
    """timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]
2026/12/01 03:08:25.839, GPU-a1b2, 7, python3 a, b, 100 MiB
""",
    "2026/12/01 03:08:25.839, 0, GPU-3-f, 5739, 3\n2026/12/01 03:08:25.942, 0, GPU-3-f, 6353, 0\n",
    """# gpu    pwr  gtemp     sm    mem     fb
# Idx      W      C      %      %     MB
    0     43     35      7      0   5739
    1     43     35      0      0   1
""",
    """#Date       Time        gpu         pid   type     sm     fb    command
#YYYYMMDD   HH:MM:SS    Idx           #    C/G      %     MB    name
 20261201   23:59:59      0          7     C     12    608    python3 -u x
 20261202   00:00:01      0          -     -      -      -    -
""",
]

RECORDING = """CMDLINE python a.py
MEM 0.125000 1754557655.6418
CHLD 1 2.000001 1754557656.0
FUNC __main__.f 1.0000 1754557655.0 2.5000 1754557656.5000
"""

BASELINE = """{
  "tracetool_baseline": 1,
  "made_by": "tracetool 0.1.0",
  "options": {"attribute_to": "op", "step_annotation": null, "custom_categories": null},
  "devices": [
    {
      "device": "cuda:0",
      "peak_allocated_bytes": 2684354560,
      "unattributed_bytes": 0,
      "peak_reserved_bytes": 2684354560,
      "estimated": false,
      "step_allocated_bytes": 4831838208,
      "step_allocation_count": 9,
      "growth_bytes_per_step": null,
      "groupings": [
        {
          "group_by": "category",
          "rows": [
            {"key": "elementwise", "live_bytes": 2147483648, "live_blocks": 4, "step_allocated_bytes": 2147483648, "step_allocation_count": 4},
            {"key": "other", "live_bytes": 536870912, "live_blocks": 1, "step_allocated_bytes": 2684354560, "step_allocation_count": 5}
          ]
        }
      ]
    }
  ]
}
"""

LIMITS = """device = "cuda:0"
max_peak = "1 GiB"
max_increase = "5%"
max_growth = "1 MiB"

[category.attention]
max = "200 MiB"
max_increase = "10%"

[op."aten::*"]
max_increase = "64 MiB"
"""


def main():
    for text in traces():
        packed = gzip.compress(text, mtime=0)
        deflated = zlib.compressobj(6, zlib.DEFLATED, -15)
        raw = deflated.compress(text) + deflated.flush()
        seed("reader", text)
        seed("reader", packed)
        seed("reports", text)
        for how in b"\x00\x01\x02":
            seed("pieces", bytes([how, 64, 0, 0]) + text)
        for how in b"\x00\x40":
            seed("inflate", bytes([how, 9, 99]) + raw)
        seed("inflate", b"\x01\x05\x40" + packed)
        seed("inflate", b"\x01\xff\xff" + gzip.compress(text[:500], 0) + packed[:3000] + b"\0\0")
    for data in snapshots():
        seed("snapshot", data)
        seed("reports", data)
    for log in LOGS:
        seed("smi", log.encode())
    seed("mprof", RECORDING.encode())
    rules = (FUZZ.parent / "src/analysis/categories.toml").read_text()
    seed("categories", rules.encode())
    for rule in rules.split("\n\n")[1:]:
        seed("categories", rule.encode())
    seed("baseline", BASELINE.encode())
    seed("limits", LIMITS.encode())


main()
