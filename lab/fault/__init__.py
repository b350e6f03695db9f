"""Faults: how each kind is done, taken back and read back; one kind a module, of the name that its key has."""
