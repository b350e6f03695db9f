"""Schema: the JSON Schema of scenarios."""
