"""One rank raises; the others then lose it in mid-collective and raise too, about something else."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

data = {"labels": torch.ones(4)} if rank != 1 else {}
labels = data["labels"]  # rank 1's part of the data has no labels
dist.all_reduce(labels)
