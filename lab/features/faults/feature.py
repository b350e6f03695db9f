"""Faults: what is broken on purpose, in a run or by hand, and healed; nodes that are stopped and started."""

from lab.feature import Feature

FEATURE = Feature(
    name="faults",
    verbs={
        "fault": (
            "lab.features.faults.verb_fault",
            "break something on purpose, also while a run goes on; list and heal what is broken",
        ),
        "stop": (
            "lab.features.faults.verb_stop",
            "stop nodes of a cluster as a power cut would, also while a run goes on",
        ),
        "start": ("lab.features.faults.verb_start", "start nodes that were stopped"),
    },
    keys={
        "network": "lab.features.faults.keys:FaultKeys",
        "faults": "lab.features.faults.keys:FaultKeys",
        "rerun": "lab.features.faults.keys:FaultKeys",
        "expect.detected_within": "lab.features.faults.keys:DetectionKeys",
    },
    options={"run": "lab.features.faults.run_option"},
    cluster={
        "fault": "lab.features.faults.by_hand:Breakable.fault",
        "faults": "lab.features.faults.by_hand:Breakable.faults",
        "heal": "lab.features.faults.by_hand:Breakable.heal",
        "stop": "lab.features.faults.by_hand:Breakable.stop",
        "start": "lab.features.faults.by_hand:Breakable.start",
    },
    views={
        "broken": "lab.features.faults.view:broken_in",
        "detections": "lab.features.faults.detection:find_detections",
        "faults_of_result": "lab.features.faults.view:describe_faults",
    },
    hooks={
        "as_broken": "lab.features.faults.healing:as_broken",
        "beyond": "lab.features.faults.planning:beyond_engine",
        "fault_names": "lab.features.faults.verb_fault:names",
        "doctor_probe": "lab.features.faults.doctor",
        "heal": "lab.features.faults.healing:heal_all",
        "once_more": "lab.features.faults.planning:once_more",
    },
    on_node="lab.features.faults.on_node",
    parts=("lab.features.faults.planning:plan_faults",),
)
