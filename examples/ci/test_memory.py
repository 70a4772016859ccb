"""A test that fails where a training step takes more memory than the baseline beside it allows.

`UPDATE_MEMORY=1 pytest` writes the baseline anew.
"""

import os
import pathlib
import subprocess

import torch
from my_project import make_step  # a function that runs one training step

BASELINE = pathlib.Path(__file__).with_name("memory-baseline.json")


def test_memory_of_a_training_step(tmp_path):
    trace, step = tmp_path / "step.json.gz", make_step()
    with torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=5, repeat=1),
        on_trace_ready=lambda prof: prof.export_chrome_trace(str(trace)),
        profile_memory=True,
        record_shapes=True,
        with_stack=True,
        with_modules=True,
    ) as prof:
        for _ in range(7):
            step()
            prof.step()
    update = ["--update"] if os.environ.get("UPDATE_MEMORY") else []
    command = ["tracetool", "check", str(trace), "--baseline", str(BASELINE), *update]
    check = subprocess.run(command, capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr
