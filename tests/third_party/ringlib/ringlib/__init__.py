"""Collectives on a ring of point-to-point messages."""

from ringlib.ring import all_reduce, neighbours

__all__ = ["all_reduce", "neighbours"]
