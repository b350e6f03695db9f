"""What the ranks of a run sent each other and when: reads traces, matches calls across ranks, measures."""
