"""Writes one snapshot with the fields of all years of torch, as every protocol of pickle writes it: snapshot_fields.py FOLDER.

The fields are those of torch/csrc/cuda/memory_snapshot.cpp. Values are small, and the totals are worked out by hand in
tests/snapshot_fields.rs.
"""

import pathlib
import pickle
import sys

MIB = 1 << 20
BASE = 0x7F0000000000


def frames(*lines):
    return [{"name": name, "filename": file, "line": line} for file, line, name in lines]


main = ("train.py", 30, "main")
forward = frames(("model.py", 12, "forward"), main)
loss = frames(("model.py", 20, "lö'ss\n"), main)
native = [{"name": "at::_ops::mm::call(at::Tensor const&)", "filename": "??", "line": 0}]


def entry(action, addr, size, us, frames=None, **more):
    told = {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 1_790_000_000_000_000 + us}
    told.update(more)
    if frames is not None:
        told["frames"] = frames
    if action == "oom":
        # Its place is taken by what the device has free.
        del told["addr"]
    return told


def block(address, size, requested, state, frames=()):
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": list(frames)}


def segment(device, address, size, blocks, **more):
    return {
        "device": device, "address": address, "total_size": size,
        "allocated_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
        "active_size": sum(b["size"] for b in blocks if b["state"] != "inactive"),
        "requested_size": sum(b["requested_size"] for b in blocks if b["state"] != "inactive"),
        "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
        "blocks": blocks, **more,
    }


# Device 0: a plain segment whose first block is from before the history; a private pool.
graph = {"compile_context": "0/0", "user_metadata": "epoch 3"}
first = [
    entry("free_completed", BASE + 8 * MIB, 2 * MIB, 0, loss),  # asked for before the history, as its block was
    entry("alloc", BASE + 8 * MIB, 2 * MIB, 10, forward, **graph),
    entry("segment_alloc", BASE + 64 * MIB, 20 * MIB, 20, forward, compile_context="N/A", user_metadata=""),
    entry("alloc", BASE + 64 * MIB, 4 * MIB, 20, loss),
    entry("oom", None, 1 << 40, 30, forward, device_free=5 * MIB),
    entry("free_requested", BASE + 8 * MIB, 2 * MIB, 40, forward),
    entry("free_completed", BASE + 8 * MIB, 2 * MIB, 50, forward),
    entry("snapshot", 0, 0, 60),
]
# Device 1: an expandable segment that grew to 6 MiB and shrank to 4 MiB.
second = [
    entry("segment_map", BASE, 6 * MIB, 5, native, stream=7),
    entry("alloc", BASE, 3 * MIB, 6, native, stream=7),
    entry("alloc", BASE + 3 * MIB, 2 * MIB, 7, native, stream=7),
    entry("free_requested", BASE + 3 * MIB, 2 * MIB, 8, native, stream=7),
    entry("free_completed", BASE + 3 * MIB, 2 * MIB, 9, native, stream=7),
    entry("segment_unmap", BASE + 4 * MIB, 2 * MIB, 11, native, stream=7),
]
snapshot = {
    "segments": [
        segment(0, BASE, 16 * MIB, [
            block(BASE, 8 * MIB, 8 * MIB - 100, "active_allocated"),
            block(BASE + 8 * MIB, 8 * MIB, 2 * MIB, "inactive"),
        ]),
        segment(0, BASE + 64 * MIB, 20 * MIB, [
            block(BASE + 64 * MIB, 4 * MIB, 4 * MIB, "active_allocated", loss),
            block(BASE + 68 * MIB, 16 * MIB, 0, "inactive"),
        ], segment_pool_id=(1, 2)),
        segment(1, BASE, 4 * MIB, [
            block(BASE, 3 * MIB, 3 * MIB, "active_allocated", native),
            block(BASE + 3 * MIB, 1 * MIB, 2 * MIB, "inactive"),
        ], is_expandable=True, stream=7),
    ],
    "device_traces": [first, second, []],
    "allocator_settings": {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "max_split_size": -1, "garbage_collection_threshold": 0.0,
        "expandable_segments": True, "release_lock_on_cudamalloc": False, "roundup_power2_divisions": {"1": 0, "2": 0},
    },
    "external_annotations": [
        {"stage": "START", "name": "step", "device": 0, "time_us": 1_790_000_000_000_005},
        {"stage": "END", "name": "step", "device": 0, "time_us": 1_790_000_000_000_045},
    ],
}

for protocol in range(6):
    path = pathlib.Path(sys.argv[1]) / f"fields.protocol{protocol}.pickle"
    path.write_bytes(pickle.dumps(snapshot, protocol=protocol))
