"""A monitored barrier on a network that is cut: rank 0 says whom it did not hear of."""

import re
from datetime import timedelta

import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dist.barrier()
    missing, message = [], "nothing"
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=True)
    except RuntimeError as error:
        message = str(error).splitlines()[0]
        found = re.search(r"Ranks? ([\d, ]+) failed to pass", message)
        missing = [int(number) for number in found[1].split(",")] if found else []
    print(f"rank {rank} was told: {message}", flush=True)
    note("missing", missing)


if __name__ == "__main__":
    main()
