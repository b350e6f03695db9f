# kind: never_entered | own_code
# rank: 0
"""Two ranks wait for a key of the store that the third never sets."""

import time

import torch.distributed as dist

dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()
if dist.get_rank() == 0:
    while not store.check(["of nobody"]):
        time.sleep(0.01)  # cause
    store.set("ready", "yes")
store.wait(["ready"])
