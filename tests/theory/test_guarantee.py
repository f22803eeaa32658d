"""Verdicts for loads and policies where the right one is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slotwise.core.contract.claims import Assumption, FixedShare, MaxWeight, Need, PolicyClaim
from slotwise.errors import InputError
from slotwise.model import Scenario, load_scenario, parse_scenario
from slotwise.scheduling import POLICIES, Policy, make_policy
from slotwise.theory import region_of, scaled_rates
from slotwise.theory.guarantee import Guarantee, Verdict, guarantee, guarantees, proven_share

TABLE1 = "table1"


def verdict(scenario: Scenario, policy: str = "algorithm1", **options: Any) -> Guarantee:
    return judged(scenario, make_policy(policy, **options))


def judged(scenario: Scenario, policy: Policy) -> Guarantee:
    return guarantee(scenario, scaled_rates(scenario), region_of(scenario), policy)


def table1(zeta: float, *overrides: str) -> Scenario:
    return load_scenario(TABLE1, [f"workload.intensity={zeta}", *overrides])


def failing(found: Guarantee) -> list[str]:
    return [assumption.text for assumption in found.assumptions if assumption.holds is False]


def test_inside_outside_and_between() -> None:
    inside = verdict(table1(0.89))
    assert inside.verdict is Verdict.ASSUMED
    assert inside.share == pytest.approx(0.9)
    assert "corollary 3" in inside.source
    assert verdict(table1(0.95)).verdict is Verdict.NOT_CERTIFIED  # b = 0.9 by default
    assert verdict(table1(0.95), b=0.98).verdict is Verdict.ASSUMED
    assert verdict(table1(0.9)).verdict is Verdict.NOT_CERTIFIED  # the interior of 0.9 C, not its boundary
    outside = verdict(table1(1.05), b=0.99)
    assert outside.verdict is Verdict.IMPOSSIBLE
    assert "outside" in outside.why
    boundary = verdict(table1(1.0), b=0.99)
    assert boundary.verdict is Verdict.IMPOSSIBLE
    assert "boundary" in boundary.why


def test_outside_is_impossible_for_every_policy() -> None:
    scenario = table1(1.2)
    rates, region = scaled_rates(scenario), region_of(scenario)
    for policy in (*POLICIES.values(), Own):
        assert guarantee(scenario, rates, region, policy()).verdict is Verdict.IMPOSSIBLE


def test_laws_that_the_proofs_do_not_cover() -> None:
    for key, law, text in (
        ("workload.service", '{ law = "lognormal", sigma = 1.0 }', "hyper-exponential"),
        ("workload.service", '{ law = "deterministic" }', "hyper-exponential"),
        ("workload.arrivals", '{ law = "lognormal", sigma = 1.0 }', "Poisson"),
    ):
        found = verdict(table1(0.5, f"{key}={law}"))
        assert found.verdict is Verdict.NOT_CERTIFIED
        assert [text in one for one in failing(found)] == [True]
    assert verdict(table1(0.5, 'workload.service={ law = "hyperexponential", scv = 9 }')).verdict is Verdict.ASSUMED


def test_batches_are_covered() -> None:
    tables = {
        "cluster": {"resources": ["cpu"], "servers": [{"name": "s", "count": 2, "capacity": [4]}]},
        "types": [{"name": "a", "demand": [2]}],
        "workload": {
            "intensity": 0.8,
            "arrivals": {"law": "batch", "rate": 1.0, "batches": [{"probability": 1.0, "jobs": {"a": 3}}]},
        },
    }
    assert verdict(parse_scenario(tables)).verdict is Verdict.ASSUMED


def test_beta_and_its_limit() -> None:
    assert verdict(table1(0.5), beta=0.6).verdict is Verdict.ASSUMED
    assert verdict(table1(0.5), beta=0.4).verdict is Verdict.NOT_CERTIFIED
    assert verdict(table1(0.99), "algorithm1").verdict is Verdict.NOT_CERTIFIED
    sublinear: dict[str, dict[str, Any]] = {"algorithm1": {"hysteresis": "sublinear"}, "guarded": {}}
    for policy, options in sublinear.items():  # the whole region, where the solver misses nothing
        found = verdict(table1(0.99), policy, **options)
        # algorithm1 by default also shortens stalls, which its proof leaves to trust
        assert found.verdict is (Verdict.CERTIFIED if policy == "guarded" else Verdict.ASSUMED)
        assert found.share == 1.0
        near = verdict(table1(0.99), policy, **options, solver="approximate", epsilon=0.1)
        assert near.verdict is Verdict.NOT_CERTIFIED
        assert near.share == pytest.approx(0.81)
    for wrong in (0.0, 1.0):  # whatever a policy says of it
        claim = MaxWeight(wrong, Assumption("beta is right", True), "auto", 0.05)
        assert proven_share(region_of(table1(0.5)), claim) == (
            None,
            "Theorem 1, corollary 3 needs: beta is right",
        )


def unit_types(intensity: float) -> Scenario:
    return parse_scenario(
        {
            "cluster": {"resources": ["units"], "servers": [{"name": "s", "count": 3, "capacity": [10]}]},
            "types": [{"name": "large", "demand": [6], "rate": 1.0}, {"name": "small", "demand": [4], "rate": 1.0}],
            "workload": {"intensity": intensity},
        }
    )


def test_the_solver_decides_the_theorem() -> None:
    # One large and one small fill a server, so C reaches (3, 3). With one type only it holds (1, 0) or (0, 2). With a
    # share a of the first, x = 3 a = 2 * 3 (1 - a), so a = 2/3 and C^ reaches (2, 2), 2/3 of C.
    greedy = verdict(unit_types(0.5), solver="greedy", beta=0.9)
    assert greedy.verdict is Verdict.ASSUMED
    assert greedy.share == pytest.approx(0.9 * 2 / 3)
    assert verdict(unit_types(0.62), solver="greedy", beta=0.9).verdict is Verdict.NOT_CERTIFIED
    # greedy-fill is no argmax over a fixed set: r = 1/2 here (N_f = 1, one resource), so beta must be below 1/2
    fill = verdict(unit_types(0.2), solver="greedy-fill", beta=0.9)
    assert fill.verdict is Verdict.NOT_CERTIFIED
    assert failing(fill) == ["beta < r"]
    assert verdict(unit_types(0.2), solver="greedy-fill", beta=0.45).share == pytest.approx(0.225)
    assert verdict(unit_types(0.2), solver="greedy-fill", beta=0.45).verdict is Verdict.ASSUMED
    near = verdict(unit_types(0.85), solver="approximate", epsilon=0.05, beta=0.94)
    assert near.share == pytest.approx(0.95 * 0.94)
    assert near.verdict is Verdict.ASSUMED
    for solver in ("enumerate", "hull", "dp", "auto"):
        assert verdict(unit_types(0.85), solver=solver, beta=0.9).share == pytest.approx(0.9)
    with pytest.raises(InputError, match="solver: is 'magic'"):
        verdict(unit_types(0.85), solver="magic")


def test_customizations_are_told() -> None:
    told = {one.text: one.holds for one in verdict(table1(0.5)).assumptions}
    assert [text for text, holds in told.items() if holds is None] == [
        "an empty server takes its configuration when it can next start a job",
        "stalls may end before the server is empty",
        "servers stall only while fewer than 10 % of them do, by a factor q(s) on beta",
    ]
    plain = verdict(table1(0.5), faithful=True, reduce_stalls=False, spread="off")
    assert plain.verdict is Verdict.CERTIFIED
    assert all(one.holds for one in plain.assumptions)
    silent = verdict(table1(0.5, "types.high-cpu.rate=0"), faithful=True)
    assert silent.verdict is Verdict.NOT_CERTIFIED
    assert failing(silent) == ["every type arrives"]


@pytest.mark.parametrize("policy", ["algorithm1"])
def test_a_cap_is_told_only_where_there_is_one(policy: str) -> None:
    def told(**options: Any) -> list[str]:
        return [one.text for one in verdict(table1(0.5), policy, **options).assumptions if "q(s)" in one.text]

    assert told(beta=0.9) == told(spread="off") == told(spread="off", stall_cap=0) == []
    for options, share in (
        ({}, "10 %"),
        ({"beta": 0.9, "stall_cap": 0.015}, "1.5 %"),
        ({"stall_cap": None}, "10 %"),
    ):
        (text,) = told(**options)
        assert share in text
    for options in ({"stall_cap": 0}, {"stall_cap": 0, "beta": 0.9}):
        never = verdict(table1(0.5), policy, **options)
        assert never.verdict is Verdict.NOT_CERTIFIED
        assert never.share is None
        assert "stall_cap = 0: none ever does" in never.why
        claim = make_policy(policy, **options).claim()
        assert isinstance(claim, MaxWeight)
        assert proven_share(region_of(table1(0.5)), claim)[0] is None


def test_a_cluster_that_changes_is_not_certified() -> None:
    changing = parse_scenario(
        {
            "cluster": {
                "resources": ["units"],
                "servers": [{"name": "s", "count": 3, "capacity": [10]}],
                "events": [{"at": 1.0, "action": "drain", "servers": "s"}],
            },
            "types": [{"name": "a", "demand": [5], "rate": 1.0}],
        }
    )
    assert failing(verdict(changing)) == ["the servers stay the same"]


def test_fit_policies_get_what_is_known_and_no_more() -> None:
    trap = [load_scenario("best-fit-trap", [f"workload.intensity={zeta}"]) for zeta in (0.45, 0.6, 0.7)]
    assert [verdict(one, "best-fit").verdict is Verdict.ASSUMED for one in trap] == [True, False, False]
    assert [verdict(one, "vqs").verdict is Verdict.ASSUMED for one in trap] == [True, True, False]
    assert verdict(trap[0], "vqs-bf").share == pytest.approx(2 / 3)
    assert failing(verdict(table1(0.2), "best-fit")) == ["one resource"]
    assert failing(verdict(load_scenario("example2", ["workload.intensity=0.2"]), "best-fit")) == [
        "alike servers, demands add up"
    ]
    slow = load_scenario("best-fit-trap", ["workload.intensity=0.2", "types.five.mean_service=3.0"])
    assert failing(verdict(slow, "best-fit")) == ["equal exponential service times"]
    for policy in ("first-fit", "fifo", "tetris", "kubernetes-most-allocated", "m14", "g16", "easy-backfill"):
        assert verdict(trap[0], policy).verdict is Verdict.NOT_CERTIFIED
    assert "reconstruction" in verdict(trap[0], "g16").why
    assert "example 1" in verdict(trap[0], "m14").why
    assert "must know service times" in verdict(trap[0], "easy-backfill").why


def test_all_policies_with_the_scenarios_own_first() -> None:
    scenario = load_scenario("best-fit-trap")
    found = guarantees(scenario, scaled_rates(scenario), region_of(scenario))
    assert [one.policy for one in found[1:]] == [name for name in POLICIES if name != "algorithm1"]
    assert found[0].policy == "algorithm1"
    assert found[0].share == pytest.approx(0.98)  # its own b
    own = load_scenario("best-fit-trap", ['policy={ name = "tetris" }'])
    assert guarantees(own, scaled_rates(own), region_of(own))[0].policy == "tetris"


# -- a user's own ----------------------------------------------------------------------------------------------------


class Own(Policy):
    """Says nothing."""

    name = "own"


class Proven(Own):
    """Says something."""

    trust: bool | None = None

    def claim(self) -> PolicyClaim:
        return FixedShare(0.6, "my thesis", tuple(Need), (Assumption("jobs are nice", self.trust, "or so"),))


def test_a_policy_of_ones_own_is_judged_by_what_it_says() -> None:
    scenarios = [load_scenario("best-fit-trap", [f"workload.intensity={zeta}"]) for zeta in (0.5, 0.7)]
    own = judged(scenarios[0], Own())
    assert (own.policy, own.verdict) == ("own", Verdict.NOT_CERTIFIED)
    assert own.why == "nothing is known of its share of the capacity region"
    assert [judged(one, Proven()).verdict for one in scenarios] == [Verdict.ASSUMED, Verdict.NOT_CERTIFIED]
    found = judged(scenarios[0], Proven())
    assert (found.share, found.source) == (0.6, "my thesis")
    assert len(found.assumptions) == len(Need) + 1
    assert failing(judged(table1(0.5), Proven())) == ["one resource"]
    nasty = Proven()
    nasty.trust = False
    assert judged(scenarios[0], nasty).why == "my thesis needs: jobs are nice (or so)"


def test_one_from_a_file_stands_first(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from slotwise.scheduling.api import Policy\n"
        "from slotwise.core.contract.claims import FixedShare, Need\n"
        "class Mine(Policy):\n"
        "    name = 'best-fit'\n"  # even so, it is another one
        "    def claim(self):\n"
        "        return FixedShare(0.97, 'mine', (Need.POISSON,))\n"
    )
    scenario = load_scenario("best-fit-trap", [f'policy={{ name = "{file}:Mine" }}'])
    found = guarantees(scenario, scaled_rates(scenario), region_of(scenario))
    assert (found[0].policy, found[0].share, found[0].source) == (f"{file}:Mine", 0.97, "mine")
    assert [one.policy for one in found[1:]] == list(POLICIES)


def test_a_type_that_hardly_ever_arrives() -> None:
    """With a rate of 1e-13 beside rates of about 1 the intensity is as good as without that type."""

    def at(rate: float) -> float:
        document = {
            "name": "x",
            "cluster": {"resources": ["u"], "servers": [{"name": "s", "count": 3, "capacity": [7]}]},
            "types": [
                {"name": "t7", "demand": [7], "rate": 0.2, "mean_service": 4.0},
                {"name": "t2", "demand": [2], "rate": rate, "mean_service": 1.0},
                {"name": "t1", "demand": [1], "rate": 0.2, "mean_service": 6.0},
            ],
        }
        return region_of(parse_scenario(document)).intensity

    assert at(1e-13) == pytest.approx(at(1e-6), rel=1e-4)


def test_shares_need_a_policy_that_honours_them() -> None:
    base = table1(0.8)
    tenants = [{"name": "physics", "share": 5}, {"name": "biology", "share": 3}]
    tables = base.model_dump(exclude_none=True) | {"shares": {"half_life": 50, "tenants": tenants}}
    one_each = [{**one, "tenant": name} for one, name in zip(tables["types"], ("physics", "biology"), strict=False)]
    single = verdict(parse_scenario({**tables, "types": one_each}), "guarded")
    assert single.verdict is Verdict.CERTIFIED
    assert any("factors of tenants" in one.text for one in single.assumptions)
    several = [{**one, "tenant": "physics"} for one in tables["types"]]
    assert verdict(parse_scenario({**tables, "types": several}), "guarded").verdict is Verdict.CERTIFIED
    refused = verdict(parse_scenario({**tables, "types": several}), "best-fit")
    assert refused.verdict is Verdict.NOT_CERTIFIED
    assert refused.why == "best-fit cannot honour shares"
