"""Packages for nodes: which wheels a Python lacks, fetched on this machine by pip; nothing of them is run."""
