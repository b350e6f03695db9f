"""Two messages by two groups of the same ranks, received in the other order."""
# nodes: 2
# kind: deadlock | unmatched

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
activations, gradients = dist.new_group([0, 1]), dist.new_group([0, 1])
one, two = torch.zeros(2), torch.ones(2)
if dist.get_rank() == 0:
    handles = [dist.isend(one, 1, group=activations), dist.isend(two, 1, group=gradients)]  # cause
    for handle in handles:
        handle.wait()
else:
    dist.recv(two, 0, group=gradients)  # also
    dist.recv(one, 0, group=activations)
