"""A scenario as YAML that loads again: what a record keeps."""

from __future__ import annotations

from lab.spec.keys import dump_keys
from lab.spec.scenario import Scenario


def dump_scenario(scenario: Scenario) -> str:
    """The scenario as a file beside its script would say it, without what is at its default."""
    import yaml

    dumper = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
    text: str = yaml.dump(dump_keys(scenario), Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text
