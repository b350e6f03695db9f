"""DDP with a hook by which every rank trains alone after two steps; weights are averaged now and then."""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
model = DistributedDataParallel(torch.nn.Linear(4, 2))
state = hook.PostLocalSGDState(process_group=None, subgroup=alone, start_localSGD_iter=2)
model.register_comm_hook(state, hook.post_localSGD_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
averager = PeriodicModelAverager(period=3, warmup_steps=2)
for _ in range(9):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).pow(2).mean().backward()
    optimizer.step()
    averager.average_parameters(model.parameters())
