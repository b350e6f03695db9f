"""env://, the default: rank, world size and where to meet come from four variables that the launcher sets.

torchrun sets them, and so does the lab; by hand it is `MASTER_ADDR=... MASTER_PORT=... RANK=... WORLD_SIZE=... python`.
"""

import os

import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    given = {name: os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")}
    print(f"the launcher says {given}", flush=True)

    dist.init_process_group("gloo", init_method="env://")  # the same as without init_method
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} is here", flush=True)
    note("given", [int(given["RANK"]), int(given["WORLD_SIZE"])])
    note("rank", dist.get_rank())
    note("world_size", dist.get_world_size())

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
