"""What imports torch once and forks the agents of many nodes: of local ones, and into containers."""
