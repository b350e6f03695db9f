"""How long gloo waits, and what it says then: to those who were there, and to the one who comes afterwards."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

PATIENCE_S = 2.0


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dist.barrier()
    impatient = dist.new_group(timeout=timedelta(seconds=PATIENCE_S))
    if rank == 1:
        time.sleep(2 * PATIENCE_S)
    began = time.perf_counter()
    try:
        dist.all_reduce(torch.ones(4), group=impatient)
        said = ""
    except RuntimeError as error:
        said = str(error)
    waited = time.perf_counter() - began
    print(f"rank {rank} after {waited:.2f} s: {said}", flush=True)
    note("waited_that_long", waited >= 0.9 * PATIENCE_S)
    note("timed_out", "imed out" in said)
    note("lost_a_peer", "onnection" in said or "eset" in said)


if __name__ == "__main__":
    main()
