"""Faults: injected and healed in a run or with `lab fault`; stopping and starting nodes."""

from lab.feature import Feature

_HOME = "lab.features.faults"
FEATURE = Feature(
    name="faults",
    needs=("strict",),
    verbs={
        "fault": (f"{_HOME}.verbs:FAULT", "inject faults, also during a run; list and heal them", "Nodes"),
        "stop": (f"{_HOME}.verbs:STOP", "stop nodes, as a power cut does", "Nodes"),
        "start": (f"{_HOME}.verbs:START", "start stopped nodes", "Nodes"),
    },
    keys={
        **dict.fromkeys(("network", "faults", "rerun"), f"{_HOME}.fault:FaultKeys"),
        "expect.detected_within": f"{_HOME}.fault:DetectionKeys",
    },
    options={"run": f"{_HOME}.verbs:RUN_OPTIONS"},
    cluster={
        "fault": f"{_HOME}.injection:inject_by_name",
        "faults": f"{_HOME}.injection:list_faults",
        "heal": f"{_HOME}.injection:heal_faults",
        "stop": f"{_HOME}.injection:stop_nodes",
        "start": f"{_HOME}.injection:start_nodes",
    },
    views={
        "broken": f"{_HOME}.detection:broken_in",
        "detections": f"{_HOME}.detection:find_detections",
        "fault_of_result": f"{_HOME}.detection:describe_fault",
    },
    hooks={
        "as_broken": f"{_HOME}.injection:as_broken",
        "beyond": f"{_HOME}.fault:beyond_engine",
        "fault_names": f"{_HOME}.verbs:list_fault_words",
        "doctor_probe": f"{_HOME}.doctor",
        "heal": f"{_HOME}.injection:heal_all",
        "rerun": f"{_HOME}.fault:plan_rerun",
    },
    on_node=f"{_HOME}.on_node",
    parts=(f"{_HOME}.fault:plan_faults",),
)
