"""One rank has a batch more than the others: its last all_reduce of gradients meets nobody."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

batches = 4 if rank == 0 else 3  # the mistake: no DistributedSampler, and 100 is not divisible by 3
for step in range(batches):
    loss = model(torch.randn(8, 10)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"rank {rank} step {step}")
