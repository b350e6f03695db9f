# kind: rendezvous
# rank: 1
"""init_device_mesh meets the others at a store; one rank looks for it at another port."""

import os

from torch.distributed.device_mesh import init_device_mesh

if os.environ["RANK"] == "1":
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
init_device_mesh("cpu", (3,))  # cause
