"""A monitored barrier says who is missing: here the ranks with an odd number never come.

A plain barrier would only hang. Rank 0 names the missing; the other present ranks learn that something failed. The
group is broken after that, so a second one, made before, leads everybody out.
"""

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

    way_out = dist.new_group()
    dist.barrier()

    missing = []
    if rank % 2 == 0:
        try:
            dist.monitored_barrier(timeout=timedelta(seconds=2), wait_all_ranks=True)
            print(f"rank {rank} passed the barrier", flush=True)
        except RuntimeError as error:
            message = str(error).splitlines()[0]
            print(f"rank {rank} was told: {message}", flush=True)
            found = re.search(r"Ranks? ([\d, ]+) failed to pass", message)
            missing = [int(number) for number in found[1].split(",")] if found else []
    else:
        print(f"rank {rank} stays away", flush=True)
    note("missing", missing if rank == 0 else None)

    dist.barrier(group=way_out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
