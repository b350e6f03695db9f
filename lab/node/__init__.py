"""What is shipped into a node: the agent, the bootstrap of its workers, `note`.

Runs on Python >= 3.9 with the standard library and torch, nothing else. In a node the package is called `labnode`
(its modules import one another relatively), so that a script's own module named `lab` is never shadowed.
"""
