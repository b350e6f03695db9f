"""What provides nodes: one Protocol, one engine a folder."""
