"""Rank 0 loads, the others receive: one reader, and no common volume needed.

Each rank builds the model with whatever weights; rank 0 fills its own from the file; then every tensor of the
state_dict, buffers included, is broadcast straight into its place. The checkpoint lies in a folder that only rank 0
uses.
"""

import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from training import make_model, trained_alone, weights_of

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

STEPS = 3


def add_buffer(model):
    """A BatchNorm in front: its running statistics are no parameters, and yet belong to the model."""
    return nn.Sequential(nn.BatchNorm1d(10), model)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    model = add_buffer(make_model(seed=100 + rank))  # other weights on every rank
    truth = add_buffer(trained_alone(STEPS, world_size))
    truth[0].running_mean.fill_(0.5)
    before = (weights_of(model) - weights_of(truth)).abs().max().item()

    if rank == 0:
        folder = Path(tempfile.mkdtemp())  # nobody else can see it
        torch.save(truth.state_dict(), folder / "model.pt")
        model.load_state_dict(torch.load(folder / "model.pt", map_location="cpu", weights_only=True))
        shutil.rmtree(folder)
    tensors = model.state_dict().values()  # not copies: receiving into one changes the model
    for tensor in tensors:
        dist.broadcast(tensor, src=0)

    after = (weights_of(model) - weights_of(truth)).abs().max().item()
    print(f"rank {rank}: {before:.2f} from the saved weights, {after:g} after {len(tensors)} broadcasts", flush=True)
    note("differed_before", before > 0.01)
    note("difference_after", after)
    note("running_mean", model[0].running_mean)
    note("broadcasts", len(tensors))
    note("weight_sum_over_truth", (weights_of(model).sum() / weights_of(truth).sum()).item())

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
