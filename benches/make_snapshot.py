"""Writes a snapshot of any size, as torch.cuda.memory._dump_snapshot() would: make_snapshot.py FILE [BYTES].

Opcodes are written one event at a time, so that a file of a gigabyte takes no memory. Each allocation is freed 64
allocations later, each has one of 512 stacks of 30 frames, and dictionaries are memoised as Python's pickler does it.
"""

import io
import struct
import sys

KEPT, STACKS, DEPTH = 64, 512, 30
BASE, APART = 0x7F0000000000, 4 << 20


class Writer:
    def __init__(self, file):
        self.file, self.memo, self.known, self.written = file, 0, {}, 0

    def raw(self, data):
        self.file.write(data)
        self.written += len(data)

    def put(self):
        self.raw(b"q" + bytes([self.memo]) if self.memo < 256 else b"r" + struct.pack("<I", self.memo))
        self.memo += 1
        return self.memo - 1

    def get(self, at):
        self.raw(b"h" + bytes([at]) if at < 256 else b"j" + struct.pack("<I", at))

    def text(self, text):
        if text in self.known:
            return self.get(self.known[text])
        data = text.encode()
        self.raw(b"X" + struct.pack("<I", len(data)) + data)
        self.known[text] = self.put()

    def number(self, n):
        if 0 <= n < 1 << 31:
            return self.raw(b"J" + struct.pack("<i", n))
        data = n.to_bytes(8, "little", signed=True)
        self.raw(b"\x8a" + bytes([len(data)]) + data)

    def dict(self, items):
        self.raw(b"}")
        at = self.put()
        self.raw(b"(")
        for key, write in items:
            self.text(key)
            write()
        self.raw(b"u")
        return at


def main(path, size):
    with open(path, "wb", buffering=1 << 20) as file:
        w = Writer(file)
        w.raw(b"\x80\x02}(")
        w.text("segments")
        w.raw(b"](")
        block = [
            ("address", lambda: w.number(BASE)),
            ("size", lambda: w.number(2 * KEPT * APART)),
            ("requested_size", lambda: w.number(0)),
            ("state", lambda: w.text("inactive")),
        ]
        w.dict([
            ("device", lambda: w.number(0)),
            ("address", lambda: w.number(BASE)),
            ("total_size", lambda: w.number(2 * KEPT * APART)),
            ("segment_type", lambda: w.text("large")),
            ("blocks", lambda: (w.raw(b"]("), w.dict(block), w.raw(b"e"))),
        ])
        w.raw(b"e")
        w.text("allocator_settings")
        w.raw(b"}")
        w.text("device_traces")
        w.raw(b"](]")
        stacks = {}

        def stack(i):
            if i in stacks:
                return w.get(stacks[i])
            w.raw(b"]")
            stacks[i] = w.put()
            w.raw(b"(")
            for depth in range(DEPTH):
                w.dict([
                    ("name", lambda: w.text(f"function_{i % 40}_{depth}")),
                    ("filename", lambda: w.text(f"/home/user/project/file_{depth}.py")),
                    ("line", lambda: w.number(i + depth)),
                ])
            w.raw(b"e")

        def item(key, write):
            """The bytes of a key and its value, both of which are known by now."""
            start, file = w.written, w.file
            w.file = parts = io.BytesIO()
            w.text(key)
            write()
            w.written, w.file = start, file
            return parts.getvalue()

        actions = ("alloc", "free_requested", "free_completed")
        for text in (*actions, "action", "addr", "size", "stream", "time_us", "compile_context", "user_metadata", "frames"):
            w.text(text)
            w.raw(b"0")
        for text in ("N/A", ""):
            w.text(text)
            w.raw(b"0")
        for i in range(STACKS):
            stack(i)
            w.raw(b"0")
        nothing = lambda: None
        heads = {action: b"(" + item("action", lambda: w.text(action)) + item("addr", nothing) for action in actions}
        size_key = item("size", nothing)
        middle = item("stream", lambda: w.number(0)) + item("time_us", nothing)
        rest = item("compile_context", lambda: w.text("N/A")) + item("user_metadata", lambda: w.text(""))
        tails = [rest + item("frames", lambda: stack(i)) + b"u" for i in range(STACKS)]
        pack = struct.Struct("<I").pack
        long = struct.Struct("<BBq").pack

        def event(action, address, bytes_, time, which):
            w.raw(b"".join((
                b"}r", pack(w.memo), heads[action], long(0x8A, 8, address), size_key, b"J", pack(bytes_),
                middle, long(0x8A, 8, time), tails[which],
            )))
            w.memo += 1

        w.raw(b"(")
        place = lambda i: BASE + (i % (2 * KEPT)) * APART
        bytes_of = lambda i: 512 * (1 + i * 7 % 4096)
        i, end = 0, size - 4096
        while w.written < end:
            time = 1_790_000_000_000_000 + 10 * i
            event("alloc", place(i), bytes_of(i), time, i % STACKS)
            if i >= KEPT:
                old = i - KEPT
                event("free_requested", place(old), bytes_of(old), time + 3, old % STACKS)
                event("free_completed", place(old), bytes_of(old), time + 4, old % STACKS)
            i += 1
        for old in range(i - KEPT, i):
            event("free_requested", place(old), bytes_of(old), time + 5, old % STACKS)
            event("free_completed", place(old), bytes_of(old), time + 6, old % STACKS)
        w.raw(b"eeu.")
    print(f"{w.written} bytes, {3 * i} events")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 30)
