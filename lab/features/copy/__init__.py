"""Copy: files and folders to and from nodes that are up."""
