"""What a node with GPUs runs to test them."""
