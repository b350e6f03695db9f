"""Tokens as int16, by a message."""
# nodes: 2
# kind: rejected
# rank: 0 | 1 | 0 1
# says: int16
# innocent: none

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tokens = torch.zeros(16, dtype=torch.int16)
if dist.get_rank() == 0:
    dist.send(tokens, 1)  # cause
else:
    dist.recv(tokens, 0)  # cause
