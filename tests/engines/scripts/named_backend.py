"""The default group with the backend that is named, or none; a second one with gloo: what they say of themselves."""

import sys

import torch
import torch.distributed as dist

from lab import note

dist.init_process_group(*sys.argv[1:])
second = dist.new_group(backend="gloo")
x = torch.ones(1)
dist.all_reduce(x, group=second)
note("backends", [dist.get_backend(), dist.get_backend(second)])
note("sum", x)
dist.destroy_process_group()
