"""One engine of judgement, pure: the facts of a run in, its verdict and findings out."""
