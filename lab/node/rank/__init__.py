"""What runs in the process of a rank, around the user's script."""
