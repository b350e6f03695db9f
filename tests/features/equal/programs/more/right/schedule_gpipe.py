"""Schedule gpipe."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

layers = [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)]
cut = {1: [0, 5], 2: [0, 3, 5]}[world_size]
stage_module = nn.Sequential(*layers[cut[rank] : cut[rank + 1]])
stage = PipelineStage(stage_module, rank, world_size, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=3, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD(stage_module.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(1)
for _ in range(5):
    inputs, targets = torch.randn(12, 8, generator=generator), torch.randn(12, 4, generator=generator)
    optimizer.zero_grad()
    if world_size == 1:
        schedule.step(inputs, target=targets)
    elif rank == 0:
        schedule.step(inputs)
    else:
        schedule.step(target=targets)
    optimizer.step()

dist.destroy_process_group()
