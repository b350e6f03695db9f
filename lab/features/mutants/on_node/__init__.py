"""Node code of mutants: change one thing that a rank does, or list what could be changed."""

HOOKS = {
    "refuse_compiled": "events:refuse_compiled",
    "recorder": "events:watch_process",
    "group_class": "calls:mutate_calls",
}
