"""Notes lists of empty lists: three bytes of text each, and sixty of memory for whoever reads them."""

import contextlib

from lab import note

lists = [[] for _ in range(40_000)]
with contextlib.suppress(Exception):
    for number in range(500):
        note(f"lists {number}", lists)
