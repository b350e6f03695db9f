"""The toy loop of every DDP tutorial: Linear 10-10-5, 100 samples, DistributedSampler, SGD.

Each rank computes the gradient of its own batch; DDP averages the gradients during backward, so every rank takes the
same step, and the parameters stay the same on all ranks, to the last bit. As the batches of the ranks are equally
large, the average is the gradient of the whole batch: a single process with that batch takes the same steps.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from toy import ToyModel, fingerprint, global_batches, own_batches, weights_of

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

EPOCHS = 2


def train(model, batches_of_epoch):
    """The weights after every step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for epoch in range(EPOCHS):
        for inputs, targets in batches_of_epoch(epoch):
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()  # DDP averages the gradients over all ranks here
            optimizer.step()
            history.append(weights_of(model))
    return history


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    history = train(DistributedDataParallel(ToyModel()), lambda epoch: own_batches(rank, world_size, epoch))
    alone = train(ToyModel(), lambda epoch: global_batches(world_size, epoch))  # one process, the whole batch

    differences = [(ours - true).abs().max().item() for ours, true in zip(history, alone)]
    print(f"rank {rank}: {len(history)} steps, weights at most {max(differences):.1e} from one process", flush=True)
    note("steps", len(history))
    note("difference_after_each_step", differences)
    note("weights_moved", bool((alone[-1] - alone[0]).abs().max() > 0.01))
    note("fingerprint_after_each_step", [fingerprint(weights) for weights in history])

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
