"""The plugin for pytest: warm clusters as fixtures, and scenarios as tests."""
