"""Links: networks that failed for a while, and links that are far worse than others."""
