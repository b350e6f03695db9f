"""What nodes run of it: reading what ranks left, in the check of a scenario."""
