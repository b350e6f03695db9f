"""CUDA_VISIBLE_DEVICES per local rank: every process of a node sees one GPU only, and calls it cuda:0.

The variable must be set before the first use of CUDA in the process; later it is ignored. (The other way is to show
all GPUs to everybody and to call torch.cuda.set_device(local_rank).)
"""

import os

import torch

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    os.environ["CUDA_VISIBLE_DEVICES"] = str(local_rank)
    note("visible", os.environ["CUDA_VISIBLE_DEVICES"])

    count = torch.cuda.device_count()
    device = None
    if count > 0:
        device = torch.ones(1, device="cuda").device
        print(f"rank {rank} sees {count} GPU, {device}: {torch.cuda.get_device_name(device)}", flush=True)
    else:
        print(f"rank {rank} may see GPU {local_rank}, but there is none: this lesson needs a GPU a process", flush=True)
    note("needs_gpu", count == 0)
    note("count", count)
    note("device", str(device) if device is not None else None)


if __name__ == "__main__":
    main()
