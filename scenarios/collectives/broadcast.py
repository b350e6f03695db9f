"""Broadcast: what the source holds replaces what every other rank holds, in place.

Every rank must name the same source. Here the first rank broadcasts, then the last one.
"""

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    mine = torch.tensor([10.0 * rank, 10.0 * rank + 1])

    from_first = mine.clone()
    dist.broadcast(from_first, src=0)
    print(f"rank {rank} held {mine}, holds {from_first} from rank0", flush=True)
    note("from_first", from_first)

    last = world_size - 1
    from_last = mine.clone()
    dist.broadcast(from_last, src=last)
    print(f"rank {rank} held {mine}, holds {from_last} from rank{last}", flush=True)
    note("from_last", from_last)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
