"""The numbers of all ranks, added up by all of them."""

import torch
import torch.distributed as dist

from lab import note

dist.init_process_group("gloo")
number = torch.tensor(float(dist.get_rank()))
dist.all_reduce(number)
note("sum", number.item())
dist.destroy_process_group()
