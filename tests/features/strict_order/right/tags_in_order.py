"""Tags that only name what comes in order anyway."""
# nodes: 2

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.zeros(3)
for tag in range(4):
    if dist.get_rank() == 0:
        dist.send(value + tag, 1, tag=tag)
    else:
        dist.recv(value, 0, tag=tag)
        assert value[0] == tag
