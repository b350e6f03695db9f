"""A checkpoint is written in the background while training goes on."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
path = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(path, src=0)
model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 6))
fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (3,)))
opt = torch.optim.Adam(model.parameters(), lr=0.01)
background = dist.new_group()
pending = None
for step in range(6):
    model(torch.randn(4, 6)).sum().backward()
    opt.step()
    opt.zero_grad()
    if step % 3 == 1:
        if pending is not None:
            pending.result()
        pending = dcp.async_save(
            {"model": get_model_state_dict(model)}, checkpoint_id=f"{path[0]}/{step}", process_group=background
        )
pending.result()
dist.destroy_process_group()
