"""Every order of epoch, commit, answer and act: the protocol holds in all of them, and each of its rules is needed."""

from __future__ import annotations

import pytest
from protocol_model import Rules, explore


def test_the_protocol_holds_in_every_order() -> None:
    found = explore(Rules())
    assert found.violation is None, (found.violation, found.path)
    assert found.states > 20_000


@pytest.mark.parametrize(
    ("rules", "violation"),
    [
        (Rules(fenced_retry=False), "was told number 0, which is another job's"),
        (Rules(numbered=False), "given up although it is the writer"),
        (Rules(fenced_commit=False), "was told number 0"),
        (Rules(fenced_engine=False), "executed twice"),
    ],
)
def test_without_one_of_its_rules_it_does_not(rules: Rules, violation: str) -> None:
    """The first is how an acknowledged job was lost: a reader without a fence took the other service's row for its own."""
    found = explore(rules)
    assert found.violation is not None
    assert violation in found.violation, (found.violation, found.path)
    assert found.path[0] in ("A takes over", "B takes over")
