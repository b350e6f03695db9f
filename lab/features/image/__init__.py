"""Image: build the image of the nodes, list and remove what was made of packages."""
