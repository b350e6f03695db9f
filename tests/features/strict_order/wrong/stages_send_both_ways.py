"""Two stages of a pipeline: activations forward and gradients backward, by unbatched isend."""
# nodes: 2
# kind: deadlock

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
sent, activation, gradient = [], torch.ones(4), torch.ones(4)
if rank == 0:
    sent += [dist.isend(activation.clone(), 1) for _ in range(3)]  # cause
    for _ in range(3):
        dist.recv(gradient, 1)
else:
    for _ in range(3):
        dist.recv(activation, 0)
        sent.append(dist.isend(gradient.clone(), 0))  # also
for handle in sent:
    handle.wait()
