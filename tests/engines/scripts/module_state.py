"""Notes what an earlier run left in modules, and leaves something there."""

import json
import os
import sys

import torch

from lab import note

note("before", [hasattr(json, "left_by_a_run"), hasattr(torch, "left_by_a_run"), "LEFT_BY_A_RUN" in os.environ])
note("dtype before", torch.get_default_dtype())
note("threads before", torch.get_num_threads())
json.left_by_a_run = torch.left_by_a_run = True
os.environ["LEFT_BY_A_RUN"] = "1"
torch.set_default_dtype(torch.float64)
torch.set_num_threads(7)
sys.path.insert(0, "/left/by/a/run")
