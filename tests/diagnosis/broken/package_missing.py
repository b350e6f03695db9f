# kind: failed
# rank: 0 | 1 | 2
# innocent: none
# says: flash_attention_9
"""A package that is not installed."""

import flash_attention_9  # cause
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print(flash_attention_9)
