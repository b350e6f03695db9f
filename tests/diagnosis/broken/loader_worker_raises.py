# kind: failed
# rank: 2
# says: truncated
# timeout: 8s
"""The worker of a DataLoader cannot read a file."""

import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if dist.get_rank() == 2 and index == 5:
            raise OSError(f"image {index} is truncated")  # cause
        return float(index)


dist.init_process_group("gloo")
for batch in DataLoader(Images(), batch_size=2, num_workers=1):  # cause
    dist.all_reduce(batch)
