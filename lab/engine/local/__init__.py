"""The local engine: a node is a group of processes of this machine."""
