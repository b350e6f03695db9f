"""isend and irecv return at once: every rank talks to both neighbours of a ring at the same time.

With blocking calls everybody would send and nobody receive. A tag keeps the two directions apart, for with two ranks
both neighbours are the same one.
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

    if world_size == 1:
        print("one rank has no neighbours", flush=True)
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    from_left, from_right = torch.tensor([-1]), torch.tensor([-1])

    requests = []
    if world_size > 1:  # nobody may send to himself
        requests = [
            dist.irecv(from_left, src=left, tag=1),
            dist.irecv(from_right, src=right, tag=2),
            dist.isend(torch.tensor([10 * rank + 1]), dst=right, tag=1),
            dist.isend(torch.tensor([10 * rank + 2]), dst=left, tag=2),
        ]
    for request in requests:
        request.wait()  # before this a received tensor must not be read, a sent one not be changed

    print(f"rank {rank} has {from_left.item()} from rank{left} and {from_right.item()} from rank{right}", flush=True)
    note("from_left", from_left)
    note("from_right", from_right)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
