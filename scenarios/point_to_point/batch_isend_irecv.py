"""A ring in batches: in each step every rank passes on, to the right, what it got from the left.

batch_isend_irecv starts a list of sends and receives together; with nccl that is what avoids a deadlock. After
world_size - 1 steps everybody has seen everything: this is how ring attention moves its keys and values.
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

    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    held = torch.tensor([rank, rank * rank])
    seen = [held]

    for step in range(world_size - 1):
        arriving = torch.empty_like(held)
        operations = [dist.P2POp(dist.isend, held, right), dist.P2POp(dist.irecv, arriving, left)]
        for request in dist.batch_isend_irecv(operations):
            request.wait()
        print(f"step {step}: rank {rank} passed on {held.tolist()}, got {arriving.tolist()}", flush=True)
        held = arriving
        seen.append(held)

    note("seen", seen)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
