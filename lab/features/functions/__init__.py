"""Functions that are called on every rank of a cluster: sent, answered, and what they raise shown as if raised here."""
