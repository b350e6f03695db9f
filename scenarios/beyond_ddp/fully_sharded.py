"""FSDP2: fully_shard leaves each rank with its rows of every weight, and training equals one process.

Before a layer computes, its weight is gathered from all ranks; afterwards it is dropped. In backward, gradients are
averaged and scattered, so each rank holds gradients and optimizer state for its rows only. A parameter is a DTensor:
to_local() is this rank's part, full_tensor() gathers the whole.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

ROWS, STEPS = 4, 5  # rows of one rank in a step


def make_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5))


def train(model, batches):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for inputs, targets in batches:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return optimizer


def train_sharded(world_size, batches):
    """The whole weights at the end, this rank's shapes by parameter, and how many numbers Adam holds here."""
    model = make_model()
    mesh = init_device_mesh("cpu", (world_size,))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = train(model, batches)
    whole = torch.cat([parameter.full_tensor().flatten() for parameter in model.parameters()]).detach()
    shapes = {name: list(parameter.to_local().shape) for name, parameter in model.named_parameters()}
    held = sum(state["exp_avg"].to_local().numel() for state in optimizer.state.values())
    return whole, shapes, held


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    random = torch.Generator().manual_seed(2)
    inputs = torch.randn(STEPS, world_size * ROWS, 10, generator=random)
    targets = torch.randn(STEPS, world_size * ROWS, 5, generator=random)
    mine = zip(inputs.chunk(world_size, dim=1)[rank], targets.chunk(world_size, dim=1)[rank])

    weights, shapes, held = train_sharded(world_size, list(mine))
    alone = make_model()
    train(alone, list(zip(inputs, targets)))  # one process, the whole batch
    true_weights = nn.utils.parameters_to_vector(alone.parameters()).detach()

    difference = (weights - true_weights).abs().max().item()
    print(f"rank {rank}: holds {shapes}, {held} of {len(weights)} numbers in Adam's exp_avg", flush=True)
    print(f"rank {rank}: weights after {STEPS} steps {difference:.1e} from one process", flush=True)
    note("difference", difference)
    note("rows_of_first_weight", shapes["0.weight"][0])
    note("rows_of_last_weight", shapes["2.weight"][0])
    note("numbers_held", held)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


def check(results):
    """Together the ranks hold every number once."""
    held = {result["rank"]: result["notes"]["numbers_held"] for result in results}
    assert sum(held.values()) == 165, f"note numbers_held: expected 165 over all ranks, got {held}"


if __name__ == "__main__":
    main()
