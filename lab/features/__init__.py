"""Features: one folder for each capability next to the kernel, with everything that belongs to it; see `lab.feature`."""
