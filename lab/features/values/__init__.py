"""Values: results that no inputs give, and what ranks brought that spoils results."""
