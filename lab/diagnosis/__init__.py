"""Judge runs. Everything here is pure: the facts of a run go in, a verdict and findings come out.

`facts` holds the facts of a run, from its events during the run and from its record afterwards. `evidence` adds
traces and stacks. `judge` returns the verdict, `causes` the findings that explain it. Both use the same modules:

- `errors` reads the texts of errors.
- `failure` and `hang` explain runs that failed or hung.
- `links` finds what happened to nodes and the network.
- `ends` describes what a rank did at the end, and who waited for whom.

A finding is data, see `finding`; the kernel's findings and their sentences are in `wording`. `expectations` compares
the verdict with what the scenario expects.
"""
