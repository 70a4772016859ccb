"""What the recordings of memory_profiler beside this are of.

mprof run -T 0.05 -o mprof_functions.dat mprof_cases.py
mprof run -T 0.05 --multiprocess -o mprof_children.dat mprof_cases.py
"""
import builtins
import multiprocessing
import time

# Without --multiprocess mprof puts it there.
profile = getattr(builtins, "profile", lambda function: function)


@profile
def load():
    rows = bytearray(b"x" * (96 << 20))
    time.sleep(0.4)
    return rows


def shard(mebibytes):
    held = bytearray(b"x" * (mebibytes << 20))
    time.sleep(0.5)
    del held


@profile
def train():
    rows = load()
    workers = [multiprocessing.Process(target=shard, args=(size,)) for size in (64, 32)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    del rows
    time.sleep(0.2)


if __name__ == "__main__":
    train()
    time.sleep(0.2)
