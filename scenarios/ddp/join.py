"""Uneven inputs: rank r has 3 + r batches, and Join lets those who are done keep the others company.

Without Join the ranks that still train would wait in backward for partners that have left: a hang. Under Join a rank
that is done mirrors the collectives with zeros. By default the sum of the gradients is still divided by the whole
world_size, as if the missing batches had gradient zero; with divide_by_initial_world_size=False by the number of ranks
that still train. At the end all take over the model of a rank that trained to the last.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from toy import ToyModel, fingerprint, weights_of

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

ROWS, LEARNING_RATE = 5, 0.1


def batches_of(rank):
    random = torch.Generator().manual_seed(100 + rank)
    count = 3 + rank
    return [(torch.randn(ROWS, 10, generator=random), torch.randn(ROWS, 5, generator=random)) for _ in range(count)]


def train_with_join(rank, divide_by_initial_world_size):
    model = DistributedDataParallel(ToyModel())
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    steps = 0
    with Join([model], divide_by_initial_world_size=divide_by_initial_world_size):
        for inputs, targets in batches_of(rank):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            steps += 1
    return weights_of(model), steps


def train_alone(world_size, divide_by_initial_world_size):
    """One process: in each step the gradients of the ranks that still have a batch, divided in the same way."""
    model = ToyModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    of_ranks = [batches_of(rank) for rank in range(world_size)]
    for step in range(max(len(batches) for batches in of_ranks)):
        present = [batches[step] for batches in of_ranks if step < len(batches)]
        loss = sum(nn.functional.mse_loss(model(inputs), targets) for inputs, targets in present)
        optimizer.zero_grad()
        (loss / (world_size if divide_by_initial_world_size else len(present))).backward()
        optimizer.step()
    return weights_of(model)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    truths = {}
    for name, divide in {"by_world_size": True, "by_ranks_that_train": False}.items():
        weights, steps = train_with_join(rank, divide)
        truths[name] = train_alone(world_size, divide)
        difference = (weights - truths[name]).abs().max().item()
        print(f"rank {rank}: {steps} steps of my own, divided {name}: {difference:.1e} from one process", flush=True)
        note("own_steps", steps)
        note(f"{name}_difference", difference)
        note(f"fingerprint_{name}", fingerprint(weights))
    apart = (truths["by_world_size"] - truths["by_ranks_that_train"]).abs().max().item()
    note("the_two_divisions_differ", apart > 1e-3)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
