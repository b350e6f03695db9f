"""ZeroRedundancyOptimizer: Adam's state is cut over the ranks, whole parameters at a time; training stays the same.

Every rank has all parameters and all (averaged) gradients, as under DDP, but keeps Adam's two moments only for the
parameters it owns, updates those, and broadcasts them. Before rank 0 can save the optimizer, consolidate_state_dict
brings the parts together.
"""

import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

warnings.filterwarnings("ignore", category=DeprecationWarning)  # PyTorch's own, on every rank
ROWS, STEPS = 4, 5


def make_model():
    torch.manual_seed(1)
    layers = [nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5)]
    return nn.Sequential(*layers)


def train(model, optimizer, batches):
    for inputs, targets in batches:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def numbers_in(state):
    return sum(of_parameter["exp_avg"].numel() for of_parameter in state.values())


def train_with_zero(batches):
    """The weights, how many numbers Adam's exp_avg has on this rank, and in all once consolidated on rank 0."""
    model = DistributedDataParallel(make_model())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    train(model, optimizer, batches)
    optimizer.consolidate_state_dict(to=0)
    in_all = numbers_in(optimizer.state_dict()["state"]) if dist.get_rank() == 0 else None
    return nn.utils.parameters_to_vector(model.parameters()).detach(), numbers_in(optimizer.optim.state), in_all


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    random = torch.Generator().manual_seed(2)
    inputs = torch.randn(STEPS, world_size * ROWS, 10, generator=random)
    targets = torch.randn(STEPS, world_size * ROWS, 5, generator=random)
    mine = list(zip(inputs.chunk(world_size, dim=1)[rank], targets.chunk(world_size, dim=1)[rank]))

    weights, held, in_all = train_with_zero(mine)
    alone = make_model()  # one process, the whole batch, plain Adam
    train(alone, torch.optim.Adam(alone.parameters(), lr=0.01), list(zip(inputs, targets)))
    difference = (weights - nn.utils.parameters_to_vector(alone.parameters()).detach()).abs().max().item()

    print(f"rank {rank}: {held} of {len(weights)} numbers of exp_avg; {difference:.1e} from one process", flush=True)
    note("difference", difference)
    note("numbers_held", held)
    if rank == 0:
        note("numbers_consolidated", in_all)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


def check(results):
    """Together the ranks hold the state of every parameter once; nobody holds it all unless alone."""
    held = {result["rank"]: result["notes"]["numbers_held"] for result in results}
    assert sum(held.values()) == 275, f"note numbers_held: expected 275 over all ranks, got {held}"
    for rank, numbers in held.items():
        most = 275 if len(results) == 1 else 274
        assert 0 < numbers <= most, f"rank {rank}: note numbers_held: expected 1 to {most}, got {numbers}"


if __name__ == "__main__":
    main()
