"""Features: one folder for each capability next to the kernel, with all that belongs to it; see `lab.feature`."""
