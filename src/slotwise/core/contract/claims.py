"""What a policy says is proven of it: plain data, made from its own options (`Policy.claim`).

A claim knows no scenario. `slotwise.theory` checks against one what the claim needs, and works out how far it reaches.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Need(enum.Enum):
    """What a proof may need of the cluster and the load, and theory can check."""

    SERVERS_STAY = enum.auto()
    """servers neither come nor go"""
    POISSON = enum.auto()
    """Poisson arrivals, also in batches"""
    HYPEREXPONENTIAL = enum.auto()
    """service times that are mixtures of exponential ones"""
    EQUAL_EXPONENTIAL = enum.auto()
    """exponential service times, with one mean for all types"""
    ONE_RESOURCE = enum.auto()
    ALIKE_SERVERS = enum.auto()
    """every server has the same capacity and may hold the same types, and demands add up"""
    ADDITIVE = enum.auto()
    """demands add up: for policies that pack by free room"""
    EVERY_TYPE_ARRIVES = enum.auto()
    """for policies that leave an empty server as it was set up"""


@dataclass(frozen=True)
class Assumption:
    """Something that a theorem needs. `holds` is None where it is taken on trust, with the reason in `detail`."""

    text: str
    holds: bool | None
    detail: str = ""


@dataclass(frozen=True)
class Unknown:
    """Nothing is proven."""

    why: str = "nothing is known of its share of the capacity region"
    source: str = ""


@dataclass(frozen=True)
class FixedShare:
    """The policy carries this share of the capacity region."""

    share: float
    source: str
    """who proved it"""
    needs: tuple[Need, ...]
    assumptions: tuple[Assumption, ...] = ()
    """about the policy itself"""


@dataclass(frozen=True)
class MaxWeight:
    """Theorem 1 of the paper: every server keeps a share beta of what an r-max-weight configuration is worth."""

    beta: float
    """its limit as the queues grow"""
    limit: Assumption
    """what beta is, and that it has such a limit"""
    solver: str
    epsilon: float
    """of the solver, where it is `approximate`"""
    sublinear: bool = False
    """beta tends to 1 (times r, where the solver is no argmax over a fixed set), and (1 - beta) sum Q to infinity"""
    stall_share: float | None = None
    """a server may stall or turn only while less than this share of the servers does; None: at any time"""
    beta_option: str = ""
    """name of the option that sets beta, for callers that try several values; empty if no option does"""
    needs: tuple[Need, ...] = ()
    """beyond those of the theorem"""
    assumptions: tuple[Assumption, ...] = ()
    """about what the policy does otherwise than the theorem says"""
    note: str = ""
    """to the name of the theorem"""


PolicyClaim = Unknown | FixedShare | MaxWeight
