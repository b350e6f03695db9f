"""The image that the nodes of the docker engine are made of: found, built, pulled."""
