"""The code in the process of a rank that runs around the user's script."""
