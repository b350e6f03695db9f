"""A package next to the script that uses it, with data of its own."""

from .loop import fit

__all__ = ["fit"]
