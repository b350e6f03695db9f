"""Image: build and pull images of nodes, list and remove what was made of packages."""
