"""The timeline of a run as a still picture."""
