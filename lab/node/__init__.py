"""What is shipped into a node: the agent, the bootstrap of its workers, `note`.

Needs only Python >= 3.9, the standard library, and torch. In a node the package is called `labnode`, so it never
shadows a script's own module named `lab`. Its modules use relative imports.
"""
