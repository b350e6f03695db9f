"""Launchers: what starts workers on nodes, one a file; pure."""
