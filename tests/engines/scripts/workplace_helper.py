"""A module beside a script."""

WHERE = "imported from beside the script"
