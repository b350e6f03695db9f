"""Training that goes on from its checkpoint, wherever a run before it came to.

The rows of a step follow from its number, so whoever resumes takes the very rows that come next. Numbers are doubles:
the order in which gradients are added, which DistributedDataParallel changes after its first step, shows in their last
bits only.
"""

import os
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROWS = 12  # of all ranks in a step
STEPS = 12


class Training:
    """A model with its optimizer, and the step that comes next."""

    def __init__(self):
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 5)).double()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.next = 0
        self.loss = float("nan")
        """Of the rows of all ranks, before the last step."""

    def wrapped(self):
        return DistributedDataParallel(self.model)

    def step(self, model, rank=0, world_size=1):
        random = torch.Generator().manual_seed(self.next)
        inputs = torch.randn(ROWS, 10, generator=random, dtype=torch.float64)
        targets = torch.randn(ROWS, 5, generator=random, dtype=torch.float64)
        with torch.no_grad():
            self.loss = nn.functional.mse_loss(self.model(inputs), targets).item()
        self.optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs[rank::world_size]), targets[rank::world_size]).backward()
        self.optimizer.step()
        self.next += 1

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "next": self.next}

    def resume(self, path):
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.next = state["next"]


def undisturbed_loss(steps):
    """Of the last of so many steps, in one process that nothing disturbs."""
    training = Training()
    while training.next < steps:
        training.step(training.model)
    return training.loss


def shared_folder():
    """A folder of this run that all nodes see, and that outlives each of them."""
    root = os.environ.get("LAB_SHARED", "/shared")
    root = root if os.path.isdir(root) else tempfile.gettempdir()
    folder = Path(root, f"run-{os.environ['TORCHELASTIC_RUN_ID']}")
    folder.mkdir(exist_ok=True)
    return folder
