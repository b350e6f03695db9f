"""Slurm's answers, as 22.05 gave them, are read as data."""

from __future__ import annotations

import json

import pytest

from lab.engine import ownership as label
from lab.errors import EngineUnavailable
from lab.features.slurm.command import (
    Fate,
    is_idle,
    is_well,
    least_machine,
    parse_pairs,
    read_fate,
    read_hosts,
    read_jobs,
)
from tests.golden import golden

NODES = """\
NodeName=n0 Arch=x86_64 CoresPerSocket=1  CPUAlloc=1 CPUEfctv=16 CPUTot=16 CPULoad=11.71 AvailableFeatures=(null) \
NodeAddr=127.0.0.11 NodeHostName=vm Port=17000 Version=22.05.8 OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  \
RealMemory=4000 AllocMem=0 FreeMem=17258 State=MIXED ThreadsPerCore=1 Partitions=lab,urgent  CfgTRES=cpu=16,mem=4000M
NodeName=n1 CPUTot=8 NodeAddr=n1.cluster RealMemory=2000 State=DOWN* Partitions=lab Reason=Not responding [slurm@2026]
"""
JOB = (
    "JobId=1 JobName=x UserId=root(0) JobState={state} Reason={reason} Dependency=(null) ExitCode=0:0 "
    "TimeLimit=UNLIMITED PreemptEligibleTime=2026-11-23T05:40:16 PreemptTime={preempted} NodeList=n[0-2]\n"
)


def fate(state: str, reason: str = "None", preempted: str = "None") -> Fate:
    return read_fate(JOB.format(state=state, reason=reason, preempted=preempted))


def test_values_may_hold_blanks():
    assert parse_pairs(golden(1)) == {"A": "1", "OS": "Linux 6.18 #1 SMP", "B:C/D": "x"}


def test_machines_have_an_address_and_what_slurm_says_is_wrong_with_them():
    first, second = read_hosts(NODES)
    assert (first.name, first.address, first.state, first.reason) == ("n0", "127.0.0.11", "MIXED", "")
    assert (second.address, second.state, second.reason) == ("n1.cluster", "DOWN*", "Not responding [slurm@2026]")
    assert (is_well(first), is_well(second)) == (True, False)


@pytest.mark.parametrize("state", ["IDLE", "ALLOCATED+CLOUD", "MIXED", "IDLE+DRAIN"])
def test_a_machine_is_well_unless_slurm_says_that_it_is_not(state: str):
    assert is_well(read_hosts(f"NodeName=a State={state}\n")[0])


@pytest.mark.parametrize("state", ["DOWN", "ALLOCATED*", "DOWN+NOT_RESPONDING", "FAIL", "ERROR+DRAIN"])
def test_a_machine_is_not_well_where_slurm_says_so(state: str):
    assert not is_well(read_hosts(f"NodeName=a State={state}\n")[0])


def test_jobs_are_the_labs_where_their_comment_holds_its_labels():
    labels = json.dumps({label.CLUSTER: "c", label.SHAPE: '{"env": {"A": "x|y"}}'})
    ours, waiting = read_jobs(
        f"7|RUNNING|n[0-2]|None|{labels}\n8|RUNNING|n1|None|(null)\n"
        f'9|RUNNING|n1|None|{{"a": 1}}\n10|PENDING||Priority|{labels}\n'
    )
    assert (ours.number, ours.cluster, ours.hosts, ours.ending) == ("7", "c", "n[0-2]", False)
    assert ours.labels[label.SHAPE] == '{"env": {"A": "x|y"}}'
    assert (waiting.hosts, waiting.reason) == ("", "Priority")


@pytest.mark.parametrize(
    ("became", "told"),
    [
        (fate("CANCELLED"), "was ended by Slurm: CANCELLED"),
        (fate("TIMEOUT", "TimeLimit"), "was ended by Slurm: TIMEOUT (TimeLimit)"),
        (fate("PREEMPTED", preempted="2026-11-23T05:50:29"), "was ended by Slurm: PREEMPTED"),
        (fate("CANCELLED", preempted="2026-11-23T05:50:29"), "was ended by Slurm: PREEMPTED"),
        (fate("NODE_FAIL"), "was ended by Slurm: NODE_FAIL"),
        (read_fate(""), "was ended by Slurm: its job is gone"),
    ],
)
def test_what_became_of_a_job_is_told_in_slurms_words(became: Fate, told: str):
    assert (became.over, became.description) == (True, told)


@pytest.mark.parametrize("state", ["PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING"])
def test_a_job_that_goes_on_has_not_ended(state: str):
    assert not fate(state).over
    assert fate(state).suspended is (state == "SUSPENDED")


def test_a_job_that_is_preempted_with_grace_has_ended_for_its_nodes():
    assert fate("RUNNING", preempted="2026-11-23T05:50:29").over


def test_the_least_machine_is_that_of_the_default_partition():
    found = least_machine("lab*|16+|4000\nlab*|8|9000\nurgent|1|10\n")
    assert (found.cores, found.memory_bytes) == (8, 4000 << 20)
    assert least_machine("a|4|100\n").cores == 4
    with pytest.raises(EngineUnavailable, match="no partition"):
        least_machine("")


def test_only_an_idle_machine_is_idle():
    assert is_idle("idle")
    assert not is_idle("idle*")
