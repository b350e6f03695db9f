"""Faults: injected and healed in a run or with `lab fault`; stopping and starting nodes."""

from lab.feature import Feature

FEATURE = Feature(
    name="faults",
    needs=("strict",),
    verbs={
        "fault": (".verbs:FAULT", "inject faults, also during a run; list and heal them", "Nodes"),
        "stop": (".verbs:STOP", "stop nodes, as a power cut does", "Nodes"),
        "start": (".verbs:START", "start stopped nodes", "Nodes"),
    },
    keys={
        **dict.fromkeys(("network", "faults", "rerun"), ".fault:FaultKeys"),
        "expect.detected_within": ".fault:DetectionKeys",
    },
    options={"run": ".verbs:RUN_OPTIONS"},
    cluster={
        "fault": ".injection:inject_by_name",
        "faults": ".injection:list_faults",
        "heal": ".injection:heal_faults",
        "stop": ".injection:stop_nodes",
        "start": ".injection:start_nodes",
    },
    views={
        "broken": ".detection:broken_in",
        "detections": ".detection:find_detections",
        "fault_of_result": ".detection:describe_fault",
    },
    hooks={
        "as_broken": ".injection:as_broken",
        "beyond": ".fault:beyond_engine",
        "fault_names": ".verbs:list_fault_words",
        "doctor_probe": ".doctor",
        "heal": ".injection:heal_all",
        "rerun": ".fault:plan_rerun",
    },
    on_node=".on_node",
    parts=(".fault:plan_faults",),
)
