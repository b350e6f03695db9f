"""How many bytes ranks sent each other, and how fast."""
