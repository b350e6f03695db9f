"""One engine of judgement, pure: the facts of a run in, its verdict and findings out.

`facts` is what is known of a run, made from its events while it goes on and from its record afterwards. `evidence` adds
traces and stacks. `judge` gives the verdict, `causes` the findings that explain it. Both ask the same modules: `errors`
(what errors tell), `failure` and `hang` (what became of the run), `links` (what happened to nodes and the network),
`ends` (what a rank did, and who waited for whom).
A finding is data, see `finding`; those of the kernel are in `wording`, with their sentences. `expectations` holds the
verdict against what the scenario expects.
"""
