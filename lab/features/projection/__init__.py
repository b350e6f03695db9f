"""What a recorded training run would take on a larger world: its calls and its own work, replayed with other times."""
