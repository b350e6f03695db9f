"""What the ranks of a run sent each other and when: read traces, match calls across ranks, measure times."""
