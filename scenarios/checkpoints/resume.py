"""Resume equals never having stopped: what a checkpoint must hold besides the weights.

Training is six steps with momentum and dropout. It is done once without a stop, and once stopped after three steps and
continued from a checkpoint by new objects. To be the same to the last bit, that takes the weights, the optimizer's
state, the number of the step (it decides which data come next), and each rank's own random state: dropout draws from
it. Leave one out, and the run goes on without complaint, elsewhere.
"""

import shutil

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from training import batch_of, make_model, own_batch, shared_folder, train_step, weights_of

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

STEPS, STOP = 6, 3


def start(rank, seed=1):
    model = nn.Sequential(nn.Dropout(0.2), make_model(seed))
    torch.manual_seed(1000 * seed + rank)  # each rank drops something else
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(model, optimizer, steps):
    ddp = DistributedDataParallel(model)
    for step in steps:
        train_step(ddp, optimizer, own_batch(step, dist.get_rank(), dist.get_world_size()))


def save(folder, model, optimizer, step):
    """Rank 0 writes what all have in common; the random state is every rank's own."""
    torch.save(torch.get_rng_state(), folder / f"random{dist.get_rank()}.pt")
    if dist.get_rank() == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, folder / "all.pt")
    dist.barrier()


def resume(folder, forget=None):
    """A new process would begin like this. Returns the weights after the last step."""
    model, optimizer = start(dist.get_rank(), seed=50)
    saved = torch.load(folder / "all.pt", map_location="cpu", weights_only=True)
    model.load_state_dict(saved["model"])
    if forget != "optimizer":
        optimizer.load_state_dict(saved["optimizer"])
    if forget != "random state":
        torch.set_rng_state(torch.load(folder / f"random{dist.get_rank()}.pt", weights_only=True))
    first = 0 if forget == "step" else saved["step"]
    train(model, optimizer, range(first, first + STEPS - STOP))
    return weights_of(model)


def train_alone(world_size):
    """One process without a stop that plays all ranks, each with its own random state."""
    model, optimizer = start(0)
    random_states = []
    for rank in range(world_size):
        start(rank)
        random_states.append(torch.get_rng_state())
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank, (inputs, targets) in enumerate(zip(*(part.chunk(world_size) for part in batch_of(step, world_size)))):
            torch.set_rng_state(random_states[rank])
            (nn.functional.mse_loss(model(inputs), targets) / world_size).backward()
            random_states[rank] = torch.get_rng_state()
        optimizer.step()
    return weights_of(model)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    folder = shared_folder()

    model, optimizer = start(rank)
    train(model, optimizer, range(STOP))
    save(folder, model, optimizer, step=STOP)
    train(model, optimizer, range(STOP, STEPS))  # the run that never stops
    never_stopped = weights_of(model)
    from_one_process = (never_stopped - train_alone(world_size)).abs().max().item()

    resumed = resume(folder)
    print(f"rank {rank}: never stopped and resumed are identical: {torch.equal(resumed, never_stopped)}", flush=True)
    note("resumed_is_identical", torch.equal(resumed, never_stopped))
    note("difference_from_one_process", from_one_process)
    for forgotten in ("optimizer", "random state", "step"):
        off = (resume(folder, forget=forgotten) - never_stopped).abs().max().item()
        print(f"rank {rank}: without the {forgotten}: off by {off:.4f}", flush=True)
        note(f"without {forgotten} it differs", off > 1e-4)

    dist.barrier()  # all have read it
    if rank == 0:
        shutil.rmtree(folder)
    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
