"""Notes a gigabyte under a hundred thousand names. More than 4 MiB are dropped; that is a limit."""

from lab import note

for number in range(10_000):
    note(f"note {number}", "x" * 100_000)
