"""Zygote: one process that imports torch once for many containers, and forks their agents into them."""
