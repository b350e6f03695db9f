"""What provides nodes: one Protocol, one implementation a file. The only place that imports docker."""
