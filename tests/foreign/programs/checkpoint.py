"""The recipe on distributed checkpoints: saved from one wrapped model with its optimizer, loaded into another."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.nn.parallel import DistributedDataParallel as DDP


class AppState(Stateful):
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer}

    def load_state_dict(self, state_dict):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optim"],
        )


def build(seed):
    torch.manual_seed(seed)
    model = DDP(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8)))
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def main(folder):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model, optimizer = build(0)
    model(torch.rand(8, 16, generator=torch.Generator().manual_seed(rank))).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    dcp.save({"app": AppState(model, optimizer)}, checkpoint_id=folder)
    print(f"rank {rank} saved, {os.path.exists(os.path.join(folder, '.metadata'))}", flush=True)
    other, its_optimizer = build(1)
    dcp.load({"app": AppState(other, its_optimizer)}, checkpoint_id=folder)
    same = all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))
    print(f"rank {rank} loaded what was saved: {same}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
