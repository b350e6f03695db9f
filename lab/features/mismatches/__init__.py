"""Mismatches: what ranks called differently, left out, or called once more."""
