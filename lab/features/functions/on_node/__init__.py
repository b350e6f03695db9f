"""What nodes run of it: ranks that take calls."""
