"""A module beside a script."""

WHERE = "imported from next to the script"
