"""The training loop: imports from its own package, by relative names."""

import json
import pickle
from pathlib import Path

import torch
import torch.distributed as dist

from . import model as models
from .model import Tiny

SETTINGS = json.loads((Path(__file__).parent / "settings.json").read_text())


def fit(config_class):
    config = config_class(**SETTINGS)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    copies = [None] * world_size
    dist.all_gather_object(copies, config)
    assert all(type(copy) is config_class and copy == config for copy in copies)
    torch.manual_seed(config.seed)
    model = Tiny(config.width)
    text = Path("trainer/data.csv").read_text().split()
    rows = [[float(value) for value in row.split(",")] for row in text][rank::world_size]
    loss = model(torch.tensor(rows)[:, : config.width]).mean()
    dist.all_reduce(loss)
    again = pickle.loads(pickle.dumps(config))
    print(f"rank {rank}: {len(rows)} rows, loss {loss.item():.4f}, {again}", flush=True)
    print(f"rank {rank}: {models.__name__}, {models.__package__}, {Path(models.__file__).name}", flush=True)
