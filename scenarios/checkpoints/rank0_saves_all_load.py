"""Rank 0 saves, every rank loads by itself.

All ranks hold the same weights, so one file is enough, and one writer: several would tear it. Three details matter. The
file appears under its name only when it is complete. Nobody reads before a barrier says that rank 0 is done. And
map_location="cpu" keeps all ranks from loading onto the device of the rank that saved.
"""

import os
import shutil

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from training import make_model, own_batch, shared_folder, train_step, trained_alone, weights_of

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

STEPS = 3


def train(rank, world_size):
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        train_step(model, optimizer, own_batch(step, rank, world_size))
    return model.module  # without the wrapper: its names would all begin with "module."


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    folder = shared_folder()

    trained = train(rank, world_size)
    if rank == 0:
        torch.save(trained.state_dict(), folder / "model.pt.part")
        os.replace(folder / "model.pt.part", folder / "model.pt")
    dist.barrier()  # the file is complete

    fresh = make_model(seed=100 + rank)  # other weights on every rank
    before = (weights_of(fresh) - weights_of(trained)).abs().max().item()
    fresh.load_state_dict(torch.load(folder / "model.pt", map_location="cpu", weights_only=True))
    after = (weights_of(fresh) - weights_of(trained)).abs().max().item()
    from_one_process = (weights_of(fresh) - weights_of(trained_alone(STEPS, world_size))).abs().max().item()
    print(f"rank {rank}: {before:.2f} from the saved weights before loading, {after:g} after", flush=True)

    note("files", sorted(path.name for path in folder.iterdir()))
    note("differed_before", before > 0.01)
    note("difference_after", after)
    note("difference_from_one_process", from_one_process)

    dist.barrier()  # all have read it
    if rank == 0:
        shutil.rmtree(folder)
    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
