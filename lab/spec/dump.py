"""A scenario as YAML that loads again: what a record keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from lab.spec.scenario import Expect, Resources, Scenario, Tracing


def dump_scenario(scenario: Scenario) -> str:
    """The scenario as a file beside its script would say it, without what is at its default."""
    import yaml

    plain = {field.name: getattr(scenario, field.name) for field in fields(scenario)}
    data: dict[str, Any] = {"name": scenario.name, "script": scenario.script.name}
    for name in ("learn", "predict", "nodes", "nproc_per_node", "backend", "env", "cold"):
        if plain[name]:
            data[name] = plain[name]
    data["args"] = list(scenario.args)
    data["timeout"] = f"{scenario.timeout_s:g}s"
    data["resources"] = _resources(scenario.resources)
    data["volumes"] = [f"{v.source}:{v.target}{':ro' if v.read_only else ''}" for v in scenario.volumes]
    data["trace"] = _tracing(scenario.trace)
    data["expect"] = _expect(scenario.expect)
    return yaml.safe_dump({k: v for k, v in data.items() if v not in ({}, [])}, sort_keys=False, allow_unicode=True)


def _resources(resources: Resources) -> dict[str, Any]:
    data = {"cpus": resources.cpus, "memory": resources.memory_bytes, "gpus": resources.gpus}
    return {name: value for name, value in data.items() if value}


def _tracing(tracing: Tracing) -> bool | dict[str, int]:
    if not tracing.on:
        return False
    return {} if tracing.values is None else {"values": tracing.values}


def _expect(expect: Expect) -> dict[str, Any]:
    default = Expect()
    data: dict[str, Any] = {}
    for name in ("exit", "notes", "logs", "check", "verdict", "culprit", "reason"):
        value = getattr(expect, name)
        if value != getattr(default, name):
            data[name] = dict(value) if name in ("exit", "notes", "logs") else value
    if expect.calls is not None:
        data["calls"] = _calls(expect.calls)
    tolerance = {"relative": expect.relative_tolerance, "absolute": expect.absolute_tolerance}
    if tolerance != {"relative": default.relative_tolerance, "absolute": default.absolute_tolerance}:
        data["tolerance"] = tolerance
    return data


def _calls(calls: Sequence[str] | Mapping[int, Sequence[str]]) -> list[str] | dict[int, list[str]]:
    if isinstance(calls, Mapping):
        return {rank: list(items) for rank, items in calls.items()}
    return list(calls)
