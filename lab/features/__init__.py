"""Features: one folder for each capability beside the kernel, with everything that belongs to it; see `lab.feature`."""
