"""A ring all_reduce by hand: 2 * (n - 1) steps, in each of which every rank sends one n-th of the data to the right.

Reduce-scatter: in n - 1 steps each chunk travels the ring and is summed on the way; rank r ends with chunk r + 1.
All-gather: in n - 1 more steps the sums travel the ring. Each rank sends 2 * (n - 1) / n of the data, whatever n is.
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
    data = torch.arange(2 * world_size) + 100 * rank
    builtin = data.clone()
    dist.all_reduce(builtin)

    chunks = list(data.chunk(world_size))  # views: what is written to a chunk is written to data
    steps = sent = 0

    def shift(outgoing):
        """Send a chunk to the right and return the one that arrives from the left."""
        nonlocal steps, sent
        arriving = torch.empty_like(outgoing)
        request = dist.isend(outgoing, dst=right)
        dist.recv(arriving, src=left)
        request.wait()
        steps, sent = steps + 1, sent + outgoing.numel()
        return arriving

    for step in range(world_size - 1):
        arriving = shift(chunks[(rank - step) % world_size])
        chunks[(rank - step - 1) % world_size] += arriving
        print(f"step {steps}: rank {rank} sums chunk {(rank - step - 1) % world_size}: {data.tolist()}", flush=True)

    for step in range(world_size - 1):
        arriving = shift(chunks[(rank - step + 1) % world_size])
        chunks[(rank - step) % world_size].copy_(arriving)
        print(f"step {steps}: rank {rank} takes chunk {(rank - step) % world_size}: {data.tolist()}", flush=True)

    note("sum", data)
    note("builtin_agrees", torch.equal(data, builtin))
    note("steps", steps)
    note("elements_sent", sent)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
