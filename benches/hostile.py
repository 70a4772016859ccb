#!/usr/bin/env python3
"""Time and memory of every command on hostile traces of one, two, four and eight times a size, a million events at last: both
must grow with the size and no faster.

Usage: benches/hostile.py [--binary target/release/tracetool] [--size EVENTS] [--shape NAME]... [--command NAME]...

Prints, for each shape and command, processor seconds and the greatest resident size at each size, and the time an event at the
largest. A line says MORE where the last doubling cost more than three times what the doubling before it did; the exit code is 1
then.
"""
import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile

COMMANDS = {
    "top": [], "peak": [], "peak-modules": ["--group-by", "module"], "timeline": ["-o", "/dev/null", "--format", "svg"],
    "steps": [], "tree": [], "blocks": [], "flamegraph": ["-o", "/dev/null", "--format", "svg"], "lines": [],
    "summary": [], "baseline": ["-o", "/dev/null"],
}


def span(name, ts, dur, category="cpu_op", tid=1, args="{}"):
    return f'{{"ph":"X","cat":"{category}","name":{json.dumps(name)},"pid":1,"tid":{tid},"ts":{ts:.3f},"dur":{dur:.3f},"args":{args}}}'


def memory(ts, size, address, total, tid=1):
    return (f'{{"ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":{tid},"ts":{ts:.3f},"args":{{"Bytes":{size},'
            f'"Addr":{address},"Device Type":1,"Device Id":0,"Total Allocated":{total},"Total Reserved":{total}}}}}')


def frame(name, ts, dur, tid=1):
    return span(name, ts, dur, "python_function", tid, '{"Python id":1}')


def nested(n):
    """Operators in operators in operators, each with a frame and a block."""
    for i in range(n // 3):
        yield span(f"op{i % 50}", 2 * i, 4 * n - 4 * i)
        yield frame(f"f{i % 50}.py({i % 9}): f", 2 * i, 4 * n - 4 * i)
        yield memory(2 * i + 1, 512, i + 1, 512 * (i + 1))


def nested_distinct(n):
    """As nested, with a name of its own for each."""
    for i in range(n // 3):
        yield span(f"op{i}", 2 * i, 4 * n - 4 * i)
        yield frame(f"f{i}.py({i}): f", 2 * i, 4 * n - 4 * i)
        yield memory(2 * i + 1, 512, i + 1, 512 * (i + 1))


def overlapping(n):
    """Every operator begins within all before it and ends after them."""
    for i in range(n // 3):
        yield span(f"op{i % 50}", i, n)
        yield frame(f"f{i % 50}.py(1): f", i, n)
        yield memory(i + 0.5, 512 if i % 2 == 0 else -512, i // 2 + 1, 512 * (i % 2 == 0))


def kernels(n):
    """Kernels that all run at once, each on a stream of its own, all of one operator."""
    yield span("op", 0, n, args='{"External id":1}')
    yield memory(1, 512, 1, 512)
    for i in range(n - 2):
        yield (f'{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":{i},"ts":{i},"dur":{n},"args":{{"External id":1,'
               f'"correlation":1,"device":0,"stream":{i}}}}}')


def steps(n):
    """A step every nanosecond."""
    for i in range(n // 3):
        yield span(f"ProfilerStep#{i}", i / 1000, 0.001, "user_annotation")
        yield span("op", i / 1000, 0.001)
        yield memory(i / 1000, 512, i + 1, 512 * (i + 1))


def at_once(n):
    """Everything at one moment."""
    for i in range(n // 3):
        yield span(f"op{i % 9}", 5, 0)
        yield frame("f.py(1): f", 5, 0)
        yield memory(5, 512 if i % 2 == 0 else -512, 1, 512 * (i % 2 == 0))


def names(n):
    """A name of its own for each operator, frame, module and annotation."""
    for i in range(n // 5):
        yield span(f"annotation{i}", 10 * i, 9, "user_annotation")
        yield frame(f"f{i}.py({i}): f{i}", 10 * i, 8)
        yield frame(f"nn.Module: M_{i}", 10 * i + 1, 6)
        yield span(f"op{i}", 10 * i + 2, 4, args=f'{{"Input Dims":[[{i}]],"External id":{i}}}')
        yield memory(10 * i + 3, 512 + i, i + 1, 512 * (i + 1))


def threads(n):
    """A thread of its own for each operator."""
    for i in range(n // 2):
        yield span("op", i, 10, tid=i)
        yield memory(i + 1, 512, i + 1, 512 * (i + 1), tid=i)


def devices(n):
    """A device of its own for each block."""
    for i in range(n):
        yield memory(i, 512, i + 1, 512).replace('"Device Id":0', f'"Device Id":{i}')


def busy_devices(n):
    """A device of its own for each kernel."""
    yield memory(0, 512, 1, 512)
    for i in range(n - 1):
        yield (f'{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":{i},"ts":{i},"dur":1,"args":{{"External id":{i},'
               f'"correlation":{i},"device":{i},"stream":7}}}}')


def half_ranges(n):
    """Begins without ends, and ends without begins."""
    for i in range(n // 3):
        yield f'{{"ph":"B","cat":"cpu_op","name":"op{i}","pid":1,"tid":{i % 7},"ts":{i}}}'
        yield f'{{"ph":"E","cat":"cpu_op","name":"op","pid":1,"tid":{7 + i},"ts":{i}}}'
        yield memory(i, 512, i + 1, 512 * (i + 1))


def one_id(n):
    """All operators, calls and kernels with one id, in processes of their own."""
    for i in range(n // 3):
        for category in ("cpu_op", "cuda_runtime", "kernel"):
            yield span("x", i, 1, category, args='{"External id":1,"correlation":1}').replace('"pid":1', f'"pid":{i}')
    yield memory(1, 512, 1, 512)


def numbers(n):
    """Numbers of 64 bits and more everywhere."""
    big = [2**63 - 1, 2**64 - 1, -2**63, 2**64, 10**40]
    for i in range(n // 2):
        value = big[i % 5]
        yield (f'{{"ph":"X","cat":"cpu_op","name":"op","pid":{value},"tid":{value},"ts":{9223372036854775 - i}.807,"dur":{2**53},'
               f'"args":{{"External id":{value},"Sequence number":{value},"correlation":{value}}}}}')
        yield memory(i, 2**62, value, value)


def json_depth(n):
    """One argument of brackets in brackets, as long as n events."""
    depth = 40 * n
    yield span("op", 1, 1, args='{"x":' + "[" * depth + "]" * depth + "}")
    yield memory(1, 512, 1, 512)


def one_string(n):
    """One name of a thousand bytes for each event: a gigabyte for a million."""
    before, after = span("\0", 1, 1).split("\\u0000")
    yield before
    for _ in range(n):
        yield "x" * 1000
    yield after + ","
    yield memory(1, 512, 1, 512)


one_string.separator = ""


def broken(n):
    """Events that are no JSON, each in another way."""
    for i in range(n // 2):
        text = span('a"b,c{', i, 1)
        yield text[: 1 + i % len(text)]
        yield memory(i, 512, i + 1, 512 * (i + 1))


def open_strings(n):
    """Quotes that nothing closes."""
    for i in range(n):
        yield '{"ph":"X","name":"' + "a{" * 30
    yield memory(1, 512, 1, 512)


SHAPES = [nested, nested_distinct, overlapping, kernels, steps, at_once, names, threads, devices, busy_devices, half_ranges, one_id,
          numbers, json_depth, one_string, broken, open_strings]


def write(shape, n, path):
    with open(path, "w", buffering=1 << 20) as out:
        out.write('{"traceEvents":[\n')
        separator = getattr(shape, "separator", ",\n")
        for i, event in enumerate(shape(n)):
            out.write((separator if i else "") + event)
        out.write("\n]}\n")


def write_bomb(n, path):
    """Spaces, a thousand times smaller when compressed; as long as n events."""
    with gzip.open(path, "wb", 9) as out:
        out.write(b'{"traceEvents":[' + span("op", 1, 1).encode() + b"," + memory(1, 512, 1, 512).encode())
        for _ in range(n):
            out.write(b" " * 1000)
        out.write(b"]}")


def run(binary, command, path):
    """Seconds and mebibytes."""
    name = command.split("-")[0]
    process = subprocess.Popen([binary, name, path, *COMMANDS[command]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 2) or "panicked" in said:
        print(f"  {command}: exit code {process.returncode}: {said[-300:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, process.returncode


def more(figures):
    """Whether the cost grows faster than the size. Twice the events cost twice as much more; were the cost quadratic, four
    times. Fixed costs cancel out."""
    seconds, sizes = [f[0] for f in figures], [f[1] for f in figures]
    return (seconds[3] - seconds[2] > 3 * (seconds[2] - seconds[1]) + 0.1
            or sizes[3] - sizes[2] > 3 * (sizes[2] - sizes[1]) + 32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/release/tracetool")
    parser.add_argument("--size", type=int, default=125_000)
    parser.add_argument("--shape", action="append")
    parser.add_argument("--command", action="append")
    args = parser.parse_args()
    shapes = {s.__name__: s for s in SHAPES} | {"gzip_bomb": None}
    grew = False
    with tempfile.TemporaryDirectory() as folder:
        for shape in args.shape or shapes:
            paths = []
            for times in (1, 2, 4, 8):
                path = os.path.join(folder, f"{shape}{times}.json")
                (write_bomb(args.size * times, path) if shapes[shape] is None else write(shapes[shape], args.size * times, path))
                paths.append(path)
            print(f"{shape}: {os.path.getsize(paths[0])} to {os.path.getsize(paths[-1])} bytes")
            for command in args.command or COMMANDS:
                figures = [run(args.binary, command, path) for path in paths]
                if more(figures):
                    # Other work on the machine disturbs single runs: the lesser of two counts.
                    again = [run(args.binary, command, path) for path in paths]
                    figures = [(min(a[0], b[0]), min(a[1], b[1]), a[2]) for a, b in zip(figures, again)]
                grew |= more(figures)
                cells = "  ".join(f"{s:6.2f} s {m:5.0f} MiB" for s, m, *_ in figures)
                code = f" exit {figures[-1][2]}" if figures[-1][2] else ""
                print(f"  {command:12} {cells}  {figures[3][0] * 1e9 / (8 * args.size):6.0f} ns/event{' MORE' if more(figures) else ''}{code}", flush=True)
            for path in paths:
                os.remove(path)
    sys.exit(1 if grew else 0)


if __name__ == "__main__":
    main()
