"""Of the stub."""
