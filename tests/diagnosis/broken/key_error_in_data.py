# kind: failed
# rank: 2
# says: whale
"""A label that the vocabulary lacks is only in one rank's share of the data."""

import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

LABELS = {"cat": 0, "dog": 1}
NAMES = ["cat", "dog"] * 5 + ["cat", "whale"]


class Animals(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return LABELS[NAMES[4 * dist.get_rank() + index]]  # cause


dist.init_process_group("gloo")
for labels in DataLoader(Animals(), batch_size=2):
    total = labels.sum().float()
    dist.all_reduce(total)
