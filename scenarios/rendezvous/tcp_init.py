"""tcp://host:port: everybody names the place to meet, and who he is, himself.

The process with rank 0 would listen there; under a launcher that hosts the store already, as torchrun and the lab do,
rank 0 connects like the others.
"""

import os

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    place = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    per_node = int(os.environ["LOCAL_WORLD_SIZE"])
    rank = int(os.environ["GROUP_RANK"]) * per_node + int(os.environ["LOCAL_RANK"])
    world_size = int(os.environ["GROUP_WORLD_SIZE"]) * per_node
    for name in ("RANK", "WORLD_SIZE"):
        del os.environ[name]  # to show that nobody reads them

    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=world_size)
    os.environ["RANK"] = str(rank)

    ranks = torch.tensor([dist.get_rank()])
    dist.all_reduce(ranks)
    print(f"rank {rank} of {world_size} met the others at {place}, the ranks add up to {ranks.item()}", flush=True)
    note("rank", dist.get_rank())
    note("world_size", dist.get_world_size())
    note("sum_of_ranks", ranks)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
