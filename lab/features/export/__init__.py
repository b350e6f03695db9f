"""Traces for other tools: JSON, Chrome's and Perfetto's formats."""
