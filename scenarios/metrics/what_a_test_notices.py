"""A training loop with two checks, as a test of it would make them.

Rank 0 broadcasts the weights, the ranks average their gradients, and every rank takes the same steps. The first check
compares the weights of all ranks. The second one compares the loss with the loss at the beginning. The scenario changes
one thing (see `mutant:` there), and this file does not know that.
"""

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

STEPS = 5


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(1)
    weights = torch.randn(4)
    dist.broadcast(weights, src=0)
    target = torch.arange(4.0) + rank  # each rank has its own data

    losses = []
    for _ in range(STEPS):
        gradient = weights - target
        losses.append(gradient.square().mean())
        dist.all_reduce(gradient)
        weights -= 0.5 * gradient / world_size
    mean = torch.stack([losses[0], (weights - target).square().mean()])
    dist.all_reduce(mean)

    everywhere = [torch.empty(4) for _ in range(world_size)]
    dist.all_gather(everywhere, weights)
    print(f"rank {rank}: the loss was {mean[0]:.4f}, and is {mean[1]:.4f}", flush=True)
    note("weights_are_equal", all(torch.equal(other, weights) for other in everywhere))
    note("loss_is_lower", bool(mean[1] < mean[0]))

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
