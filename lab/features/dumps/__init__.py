"""Flight recorder dumps, as PyTorch writes them of any job: their words, read safely, made into a record."""
