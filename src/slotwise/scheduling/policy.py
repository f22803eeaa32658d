"""The policy interface: a name, options, what the core shall keep for it, and a few functions over the state.

Subclass `Policy` and give it `arrive` and `complete` (static methods) at least; in plain Python first, with
`@numba.njit` for speed. docs/guides/own-policy.md is a worked example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slotwise.errors import InputError
from slotwise.scheduling.hooks import Hooks, as_value, nothing

if TYPE_CHECKING:
    from slotwise.scheduling.store import Store

Keep = Literal["free", "fit", "tree", "lists", "use"]


class Options(BaseModel):
    """The parameters of a policy; unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    ties: Literal["random", "first"] = Field("random", description="how ties between configurations are broken")


class FitOptions(Options):
    """Parameters of every policy that packs by what is free."""

    pack_by: Literal["actual", "type"] = Field(
        "actual", description="pack jobs by what they really ask for, or by the (rounded) demand of their type"
    )


class Policy:
    """A scheduling policy. The functions read and change the state through `slotwise.scheduling.api` only."""

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    Options: ClassVar[type[Options]] = Options
    keeps: ClassVar[frozenset[Keep]] = frozenset({"free"})
    """free: free room of each server, without which `start` goes by slots; fit: the index of best fits; tree: that of first fits; lists: jobs of a server; use: what all
    running jobs take together"""
    needs_durations: ClassVar[bool] = False
    holds_tokens: ClassVar[bool] = False
    """it holds room with tokens, as G16 does"""
    keeps_slots: ClassVar[bool] = False
    """it keeps room for types that come seldom, as `guarded` does"""
    compiled: ClassVar[bool] = False
    """the hooks are written for the compiler; functions under @njit are compiled in any case"""

    arrive: ClassVar[Any] = staticmethod(nothing)
    complete: ClassVar[Any] = staticmethod(nothing)
    join: ClassVar[Any] = staticmethod(nothing)
    leave: ClassVar[Any] = staticmethod(nothing)
    cancel: ClassVar[Any] = staticmethod(nothing)
    tick: ClassVar[Any] = staticmethod(nothing)

    def __init__(self, **options: Any) -> None:
        try:
            self.options: Any = self.Options(**options)
        except ValidationError as error:
            raise _option_error(self.name, type(self).Options, error) from None

    @property
    def solver(self) -> str | None:
        """The packing solver to be made for each server class; None where the policy asks for none."""
        return getattr(self.options, "solver", None)

    @property
    def actual(self) -> bool:
        """Whether jobs are packed by their actual demand."""
        return getattr(self.options, "pack_by", "type") == "actual"

    def prepare(self, store: Store) -> None:
        """Write parameters into the state, before any server joins."""

    def hooks(self) -> Hooks:
        """The functions, as drivers take them."""
        return Hooks(*(as_value(getattr(self, name), compiled=self.compiled) for name in Hooks._fields))


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
