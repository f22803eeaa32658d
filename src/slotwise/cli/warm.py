"""`slotwise warm`: compile ahead what first runs would compile."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from slotwise.cli.compiling import name_of, shown
from slotwise.cli.completing import policy_names
from slotwise.compiler.kernel import JIT, cache_path
from slotwise.core.contract.hooks import HOOKS
from slotwise.errors import SlotwiseError
from slotwise.policies import POLICIES, make_policy
from slotwise.simulation.run import ahead


def warm(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[POLICY]...", autocompletion=policy_names, help="the policies (default: all)"),
    ] = None,
) -> None:
    """Compile policies now instead of at their first run, in install scripts and container images.

    The compiled code is stored with the package, or in NUMBA_CACHE_DIR. It is valid for this user, this kind of processor and this
    version. Compiled policies are not compiled again.

    \b
    Examples:
      slotwise warm
      slotwise warm guarded best-fit
    """
    policies = [make_policy(name) for group in names or POLICIES for name in group.split(",")]
    begun = time.monotonic()
    pieces = list(
        dict.fromkeys(
            p
            for policy in policies
            for p in ahead.pieces_of(policy, ("join", *HOOKS), ahead.DRIVERS, everything=True)
        )
    )
    new = len(ahead.missing(pieces))
    with shown():
        ahead.compile_pieces(pieces)
    if left := [piece for piece in pieces if JIT and not ahead.in_cache(piece)]:
        raise SlotwiseError(
            f"{len(left)} of {len(pieces)} kernels could not be compiled, such as {name_of(left[0])}"
        )
    done = f"compiled {new} in {time.monotonic() - begun:.0f} s" if new else "nothing to do"
    print(f"{len(pieces)} kernels of {len(policies)} policies are compiled ({done}), in {cache_path()}")
