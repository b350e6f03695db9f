# kind: failed
# rank: 1
# timeout: 8s
"""The worker of a DataLoader is killed; the handler of SIGCHLD raises wherever its rank is then."""

import os
import signal
import time

import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if dist.get_rank() == 1 and index == 5:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        return float(index)


dist.init_process_group("gloo")
for batch in DataLoader(Images(), batch_size=2, num_workers=1):  # cause
    dist.all_reduce(batch)  # cause
