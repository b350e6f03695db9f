"""Compare: what two runs did differently, and runs held against earlier ones."""
