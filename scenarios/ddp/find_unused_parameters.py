"""A parameter that no loss used: DDP waits for its gradient, and says so in the next forward.

The model has two branches; rank r's loss goes through branch r % 2 only. DDP counts gradients, and the other branch's
never come: the step ends without the all_reduce, and the next forward raises. With find_unused_parameters=True DDP
walks the graph after each forward and counts unused parameters as done, with gradient zero. That equals one process
that sends each rank's rows through that rank's branch. A branch that no rank used keeps grad None.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

ROWS = 6


class TwoBranches(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.trunk = nn.Linear(4, 4)
        self.branches = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)])

    def forward(self, x, branch):
        return self.branches[branch](self.trunk(x).relu())


def step(model, batch, rank):
    model(batch, rank % 2).square().mean().backward()


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    batches = torch.randn(world_size, ROWS, 4, generator=torch.Generator().manual_seed(2))

    note("refused_in_second_forward", refused_in_second_forward(batches[rank], rank))
    gradients = gradients_with_flag(batches[rank], rank)

    alone = TwoBranches()  # one process: each rank's rows through that rank's branch, the mean of the losses
    sum(alone(batches[r], r % 2).square().mean() / world_size for r in range(world_size)).backward()
    for name, parameter in alone.named_parameters():
        if parameter.grad is None or gradients[name] is None:
            same = parameter.grad is gradients[name]
        else:
            same = torch.allclose(gradients[name], parameter.grad, atol=1e-6)
        note(f"{name} equals one process", same)
    unused = [name for name, gradient in gradients.items() if gradient is None]
    print(f"rank {rank}: used branch {rank % 2}; no gradient at all for {unused or 'none'}", flush=True)
    note("without_gradient", unused)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


def refused_in_second_forward(batch, rank):
    model = DistributedDataParallel(TwoBranches())
    step(model, batch, rank)  # nothing is said yet
    try:
        step(model, batch, rank)
    except RuntimeError as refused:
        print(f"rank {rank}: second forward: {str(refused).splitlines()[0][:110]}...", flush=True)
        return "Expected to have finished reduction in the prior iteration" in str(refused)
    return False


def gradients_with_flag(batch, rank):
    model = DistributedDataParallel(TwoBranches(), find_unused_parameters=True)
    step(model, batch, rank)
    model.zero_grad()
    step(model, batch, rank)
    return {name: parameter.grad for name, parameter in model.module.named_parameters()}


if __name__ == "__main__":
    main()
