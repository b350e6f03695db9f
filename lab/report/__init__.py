"""Views of a run for a person: pure functions of what is on record, none of which needs an engine."""
