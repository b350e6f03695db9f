"""Prints ten gigabytes. More than 16 MiB of a rank are dropped, and a run that reaches a limit earns nothing."""

import sys

line = "the sum is 12941\n" * 6000
for _ in range(10 * 1024**3 // len(line)):
    sys.stdout.write(line)
