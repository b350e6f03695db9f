"""What DistributedDataParallel sends, call by call: a model of three layers, buckets of 1 MB, three steps.

An engineer who traced such a script on an earlier PyTorch saw: a barrier in init_process_group; an all_gather and
broadcasts in DDP(); then in every step zero_grad, forward, loss, and all_reduce in backward; and in the second step two
broadcasts more. What is the all_gather for? Why two broadcasts in the second step, and never again? docs/ddp-story.md
answers.

The script calls nothing but DDP. The lab's trace has the calls that DDP issues from C++, and story.yaml states them.

n = 1000 by default, 4 MB of parameters. `--hidden 10000` is the published size, 400 MB of parameters: the same story,
but for a second broadcast of parameters, as one carries about 250 MB.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

ROWS, STEPS = 8, 3  # rows of one rank in a step


def make_model(hidden):
    return nn.Sequential(nn.Linear(10, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 5))


def train(hidden):
    """Three steps. The DDP object ends with this function: it must not outlive its process group."""
    rank = dist.get_rank()
    torch.manual_seed(rank)  # every rank draws other weights and other data

    model = make_model(hidden)
    own = model[0].weight[0, 0].item()
    ddp = DistributedDataParallel(model, bucket_cap_mb=1)  # are the models alike? then rank 0's parameters to all
    print(f"rank {rank}: its own first weight {own:+.4f}, after DDP() {model[0].weight[0, 0].item():+.4f}", flush=True)
    note("parameters", sum(p.numel() for p in model.parameters()))

    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    loss_function = nn.MSELoss()
    for step in range(STEPS):
        optimizer.zero_grad()
        outputs = ddp(torch.randn(ROWS, 10))  # step 1: new buckets, in the order in which gradients became ready
        loss = loss_function(outputs, torch.randn(ROWS, 5))
        loss.backward()  # gradients are added up here, one all_reduce a bucket
        optimizer.step()
        print(f"rank {rank}: step {step}: loss {loss.item():.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=1000)
    hidden = parser.parse_args().hidden

    dist.init_process_group("gloo")  # no barrier in here since PyTorch 2.1, unless TORCH_DIST_INIT_BARRIER=1
    train(hidden)
    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
