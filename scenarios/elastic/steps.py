"""What the scenarios of this folder share: training that goes on from its checkpoint, whoever is left to do it.

The rows of a step are the same however many ranks share them: each takes its part, and the gradients are averaged. The
parts are equally large, so the world may shrink or grow, and the training stays the same but for the order in which
numbers are added.

Gradients are averaged by hand. DistributedDataParallel would do, but it packs them into other buckets after its first
step, and where a number stands in a bucket decides in which order gloo adds it up: a training that was resumed would
differ from one that was not in the last bits.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

ROWS = 12  # of a step; 2 ranks and 3 can share them
A_STEP_S = 0.02  # so that a machine can be lost somewhere


class Training:
    """A model with its optimizer, and the step that comes next."""

    def __init__(self):
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 5)).double()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.next = 0
        self.worlds = []  # sizes of the world that it was trained in

    def step(self, rank=0, world_size=1):
        random = torch.Generator().manual_seed(self.next)
        inputs = torch.randn(ROWS, 10, generator=random, dtype=torch.float64)
        targets = torch.randn(ROWS, 5, generator=random, dtype=torch.float64)
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(inputs[rank::world_size]), targets[rank::world_size])
        loss.backward()
        if world_size > 1:
            average(self.model.parameters(), world_size)
        self.optimizer.step()
        self.next += 1
        return loss.item()

    def weights(self):
        return nn.utils.parameters_to_vector(self.model.parameters()).detach().clone()

    def save(self, path):
        """Whole or not at all: whoever is killed in the middle leaves the checkpoint before."""
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        state |= {"next": self.next, "worlds": self.worlds}
        torch.save(state, path.with_suffix(".new"))
        os.replace(path.with_suffix(".new"), path)

    def resume(self, path):
        if path.exists():
            state = torch.load(path, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.next, self.worlds = state["next"], state["worlds"]


def average(parameters, world_size):
    """Replace each gradient by its mean over all ranks."""
    gradients = [parameter.grad for parameter in parameters]
    flat = nn.utils.parameters_to_vector(gradients)
    dist.all_reduce(flat)
    nn.utils.vector_to_parameters(flat / world_size, gradients)


def checkpoint_path():
    """A file of this run that all nodes see, and that outlives each of them."""
    folder = Path(os.environ.get("LAB_SHARED", "/tmp"), f"run-{os.environ['TORCHELASTIC_RUN_ID']}")
    folder.mkdir(exist_ok=True)
    return folder / "checkpoint.pt"


def train(training, done, path=None, before=None):
    """Train until it is done, with a checkpoint after each step; `before` is called with the number of each."""
    rank, loss = dist.get_rank(), float("nan")
    while not done(training.next):
        if before is not None:
            before(training.next)
        loss = training.step(rank, dist.get_world_size())
        if path is not None:
            if rank == 0:
                training.save(path)
            dist.barrier()  # nobody goes on before it is there
            time.sleep(A_STEP_S)
    return loss


def alone(steps):
    """The weights after so many steps of one process that nothing disturbs."""
    training = Training()
    while training.next < steps:
        training.step()
    return training.weights()
