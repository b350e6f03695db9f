"""static_graph=True: the promise that every step uses the same parameters in the same way, and what it buys.

A layer that is used twice under (reentrant) activation checkpointing gets its gradient in two separate backward passes.
DDP expects each parameter to be ready once and refuses. With static_graph=True it records in the first step how often
each is used and reduces after the last time. The same record lets unused parameters be skipped without a walk through
the graph in each step.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

ROWS, STEPS = 6, 3


class UsedTwice(nn.Module):
    """`shared` runs twice in each forward, recomputed in backward; `unused` never does."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.shared, self.unused = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)
        for _ in range(2):
            x = checkpoint(lambda x: self.shared(x).tanh(), x, use_reentrant=True)
        return x


def train(model, batches):
    """The used weights after every step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for batch in batches:
        optimizer.zero_grad()
        (model(batch) - 1).square().mean().backward()
        optimizer.step()
        history.append(nn.utils.parameters_to_vector(model.parameters()).detach().clone())
    return torch.stack(history)


def train_by_ddp(batches, static_graph):
    return train(DistributedDataParallel(UsedTwice(), static_graph=static_graph), batches)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    whole = torch.randn(STEPS, world_size * ROWS, 4, generator=torch.Generator().manual_seed(2))
    mine = whole.chunk(world_size, dim=1)[rank]

    try:
        train_by_ddp(mine, static_graph=False)
        refusal = ""
    except RuntimeError as refused:
        refusal = str(refused)
    print(f"rank {rank}: without: {refusal[:90]}...", flush=True)

    history, alone = train_by_ddp(mine, static_graph=True), train(UsedTwice(), whole)
    difference = (history - alone).abs().max().item()
    print(f"rank {rank}: with static_graph: weights {difference:.1e} from one process", flush=True)
    note("refused_without", "marked as ready twice" in refusal or "mark a variable ready only once" in refusal)
    note("difference", difference)
    note("moved", bool((alone[-1] - alone[0]).abs().max() > 1e-3))

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
