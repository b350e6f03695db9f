"""What views of a run share when they draw it: lanes of ranks, colours, and shapes of SVG."""
