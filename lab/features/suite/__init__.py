"""Many scenarios on warm clusters side by side: what is run, in which order, and what came of it."""
