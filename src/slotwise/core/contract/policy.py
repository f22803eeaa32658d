"""The policy interface: a name, options, a memory, what the core shall keep for it, and a few functions over the state.

Subclass `Policy` and give it `arrive` and `complete` (static methods) at least; in plain Python first, with
`@numba.njit` for speed. docs/guides/own-policy.md is a worked example.

What is special to a policy stands in its class: what it remembers, why its jobs wait, what its servers do, what is proven of it. The
rest of the house asks, and knows no policy by name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slotwise.core.contract import learnt as learning
from slotwise.core.contract.claims import Assumption, PolicyClaim, Unknown
from slotwise.core.contract.hooks import HOOKS, Hooks, as_value, nothing
from slotwise.core.contract.memory import Memory
from slotwise.core.contract.reasons import Because, Reason
from slotwise.errors import InputError

if TYPE_CHECKING:
    from slotwise.core.contract.view import View
    from slotwise.core.store import Store

# What the core can keep up to date for a policy:
#
# - `free`: the free capacity of each server, without which `start` goes by slots
# - `fit`: the index of best fits; `tree`: the index of first fits
# - `lists`: the jobs of each server; `use`: what all running jobs take together
# - `ranks`: which types have a waiting job, from large to small
# - `line`: the waiting jobs by what they ask for, unless the head of each queue says it all
# - `unlike`: as `line`, but only if jobs of one type request different amounts
Keep = Literal["free", "fit", "tree", "lists", "use", "ranks", "line", "unlike"]
SolverName = Literal["auto", "hull", "enumerate", "dp", "greedy", "greedy-fill", "search", "approximate"]


class Options(BaseModel):
    """The parameters of a policy; unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    ties: Literal["random", "first"] = Field("random", description="how ties between configurations are broken")


class FitOptions(Options):
    """Parameters of every policy that packs by what is free."""

    pack_by: Literal["actual", "type"] = Field(
        "actual", description="pack jobs by what they really ask for, or by the (rounded) demand of their type"
    )


class SolverOptions(Options):
    """Parameters of every policy that looks for max-weight configurations."""

    solver: SolverName = Field("auto", description="how the (r-)max-weight configuration is found")
    epsilon: float = Field(0.05, gt=0, lt=1, description="solver approximate: r = 1 - epsilon")


class Policy:
    """A scheduling policy. The functions read and change the state through `slotwise.scheduling.api` only."""

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    Options: ClassVar[type[Options]] = Options
    memory: ClassVar[Memory] = Memory()
    """what it remembers between events"""
    keeps: frozenset[Keep] = frozenset({"free"})
    """What the core keeps up to date for the policy."""
    needs_durations: bool = False
    # Options and learnt values of earlier versions, which a situation may still have; they are left out when it is read.
    retired: ClassVar[frozenset[str]] = frozenset()
    compiled: ClassVar[bool] = False
    """the hooks are written for the compiler; functions under @njit are compiled in any case"""

    honours_shares: ClassVar[bool] = False
    """it scales weights by the factors of `core.sharing`, so that tenants get their shares"""

    asks_at_departures: ClassVar[bool] = False
    """its hooks ask for configurations only when a job leaves a server while jobs wait, and only for this server"""

    # Its hooks read the time of the event, `s.now`. Policies that need durations always may.
    keeps_clock: ClassVar[bool] = False

    # Open slots of a configuration are kept for their types, and count as kept capacity.
    reserves: ClassVar[bool] = True

    late: tuple[Any, ...] = ()
    """functions that its hooks call by their address (`hooks.late`), named so that they can be compiled ahead"""

    arrive: Any = staticmethod(nothing)
    complete: Any = staticmethod(nothing)
    join: Any = staticmethod(nothing)
    leave: Any = staticmethod(nothing)
    cancel: Any = staticmethod(nothing)
    tick: Any = staticmethod(nothing)
    resume: Any = None
    """None: as `join`"""
    stop: Any = None
    """None: as `complete`"""
    file: Any = staticmethod(nothing)

    def __init__(self, **options: Any) -> None:
        try:
            self.options: Any = self.Options(**options)
        except ValidationError as error:
            raise _option_error(self.name, type(self).Options, error) from None

    @property
    def label(self) -> str:
        """Its name, or that of its class."""
        return self.name or type(self).__name__

    origin: str | None = None
    """file.py:ClassName, where it is a user's own and was made by that name"""

    @property
    def called(self) -> str:
        """What `make_policy` makes it of again."""
        return self.origin or self.label

    # -- what the core shall do for it ----------------------------------------------------------------------------

    @property
    def solver(self) -> str | None:
        """The packing solver to be made for each server class; None where the policy asks for none."""
        return str(self.options.solver) if isinstance(self.options, SolverOptions) else None

    @property
    def solves_late(self) -> bool:
        """Whether the solver of a class may be made when a job leaves a server of this class, and not before."""
        return self.asks_at_departures and not self._replaced_since("asks_at_departures")[1]

    @property
    def actual(self) -> bool:
        """Whether jobs are packed by their actual demand."""
        return isinstance(self.options, FitOptions) and self.options.pack_by == "actual"

    gained: ClassVar[bool] = False
    """whether a type weighs gain_j Q_j + offset_j, which the policy sets, and not Q_j"""

    @property
    def uses_estimates(self) -> bool:
        """Whether simulations shall give it users' estimates instead of true durations."""
        return False

    def with_estimates(self) -> Policy:
        """Return the policy for jobs with estimates: itself, or one that uses estimates without being asked to."""
        return self

    @property
    def own_queues(self) -> bool:
        """Whether every server has queues of its own."""
        return False

    @property
    def log_weights(self) -> bool:
        """Whether a queue weighs log(1 + Q) instead of Q."""
        return False

    # -- its numbers ----------------------------------------------------------------------------------------------

    def check(self, store: Store) -> None:
        """Raise an `InputError` where the policy is not for such a cluster or such types."""

    def prepare(self, store: Store) -> None:
        """Write options into the state, before any server joins."""

    def learnt(self, store: Store, names: learning.Names) -> dict[str, Any]:
        """Return what the policy has learnt, by name: the fields of its memory that are kept."""
        return learning.read(store, names)

    def recall(self, store: Store, values: dict[str, Any], names: learning.Names) -> None:
        """Take back what `learnt` gave. Servers and jobs are there already; the indexes are filed after this."""
        learning.write(store, values, names)

    def shifted(self, values: dict[str, Any], by: float) -> dict[str, Any]:
        """Return the values of `learnt` with all times in them moved by `by`."""
        return values

    def recalled(self, store: Store) -> None:
        """Compute what follows from the state, now that all of it is back."""

    # -- theory ---------------------------------------------------------------------------------------------------

    def claim(self) -> PolicyClaim:
        """Return what is proven of the policy with these options. A subclass that decides otherwise must say so
        anew."""
        return Unknown()

    def claim_with_shares(self) -> tuple[Assumption, ...]:
        """Return what the claim also needs if tenants have shares."""
        return (Assumption("the policy honours shares", self.honours_shares),)

    def proven(self) -> PolicyClaim:
        """Return the claim, or that nothing is known if a subclass has other hooks than the class that makes the claim."""
        owner, other = self._replaced_since("claim")
        if other:
            return Unknown(
                f"{type(self).__name__} has its own {', '.join(other)}, so the proof of {owner.__name__} says nothing about it"
            )
        return self.claim()

    def _replaced_since(self, attribute: str) -> tuple[type, list[str]]:
        """Return the class that sets an attribute, and the names of the hooks that a subclass has replaced since."""
        owner = next(one for one in type(self).__mro__ if attribute in one.__dict__)
        return owner, [name for name in HOOKS if getattr(type(self), name) is not getattr(owner, name)]

    # -- explanations ---------------------------------------------------------------------------------------------

    def why_waits(self, view: View, i: int) -> Because:
        """Return why job i, which some present server could hold, has not started."""
        return view.no_room(i) or Because(Reason.UNDECIDED)

    def describe(self, view: View, server: int) -> tuple[Because, ...]:
        """Return what a server that takes jobs does, and why."""
        figures = {"holding": view.holding(server)}
        if not view.store.state.keeps_free:
            return (Because(Reason.HOLDS, figures),)
        return (Because(Reason.PACKS, figures | {"free": view.free(server)}),)

    def keeps_back(self, view: View) -> list[tuple[int, int]]:
        """Return (server, type) of each slot that the policy keeps free beside its configurations."""
        return []

    # -- its functions --------------------------------------------------------------------------------------------

    def hook(self, name: str) -> Any:
        """Return one of the policy's functions, as drivers take it."""
        function = getattr(self, name) or getattr(self, HOOKS[name])
        return as_value(function, compiled=self.compiled)

    def hooks(self, names: Collection[str] = Hooks._fields) -> Hooks:
        """Return the functions that drivers need. Hooks that are not in `names` do nothing."""
        idle = as_value(nothing, compiled=True)
        return Hooks(*(self.hook(name) if name in names else idle for name in Hooks._fields))


def _option_error(policy: str, options: type[Options], error: ValidationError) -> InputError:
    finding = error.errors(include_url=False)[0]
    key = str(finding["loc"][0]) if finding["loc"] else ""
    if finding["type"] == "extra_forbidden":
        known: Sequence[str] = list(options.model_fields)
        what, remedy = "unknown option", f"{policy} has: {', '.join(known)}"
    else:
        what = f"is {finding['input']!r}" if key else "the options do not go together"
        message = finding["msg"].removeprefix("Value error, ").removeprefix("Input ")
        remedy = message[0].lower() + message[1:]
    return InputError(what, where=f"policy {policy}" + (f".{key}" if key else ""), remedy=remedy)
