"""Training: what ranks train, and how far it is the same on all of them."""
