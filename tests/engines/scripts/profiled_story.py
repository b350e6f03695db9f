"""Runs the script story.py beside it under torch.profiler and notes how often each operation of gloo was called."""

from collections import Counter

import story
from torch.profiler import ProfilerActivity, profile

from lab import note

with profile(activities=[ProfilerActivity.CPU]) as profiler:
    story.main()
names = [event.name for event in profiler.events()]
note("counted", dict(Counter(name.removeprefix("gloo:") for name in names if name.startswith("gloo:"))))
