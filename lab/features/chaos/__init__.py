"""Search for faults that a scenario does not survive: drawn from its own record, shrunk, written as a scenario."""
