"""Scenario + cluster -> what every worker will be given. Pure: nothing here talks to an engine."""
