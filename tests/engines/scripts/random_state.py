"""Notes what each generator gives first; with an argument, after seeding it."""

import random
import sys

import numpy as np
import torch

from lab import note

if len(sys.argv) > 1:
    seed = int(sys.argv[1])
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)

note("random", random.random())
note("numpy", np.random.rand())
note("torch", torch.rand(1).item())
note("generator", torch.Generator().initial_seed())
note("permutation", torch.randperm(5))
