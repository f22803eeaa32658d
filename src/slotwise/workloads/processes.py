"""Arrival times of one type, as a sequence that does not depend on how it is asked for.

Renewal: t_k = t_{k-1} + U_k / lambda from t_0 = 0, with mean-one gaps U. Deterministic: t_k = (k + phase) / lambda
with one uniform phase for each type, so that types with equal rates do not arrive at the same instants.

Markov-modulated: a chain is in state s for an exponential time of mean d_s. There it multiplies all rates by x(s) >= 0,
scaled so that the long-run mean of x, with weights d_s, is one. The k-th arrival of a type is at X^-1(A_k), X(t) =
int_0^t x, where A is a Poisson process of the type's rate: the operational time of the chain. The chain starts from its
stationary law. The types that share a chain share X and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from slotwise.errors import InputError
from slotwise.model.laws import Deterministic, Law, MarkovModulated, Poisson
from slotwise.workloads.laws import Sampler, child, generator, sampler

Floats = NDArray[np.float64]

MOST_CHANGES = 100_000.0  # of a chain's state between two arrivals of a type


class ArrivalProcess(Protocol):
    """Arrival times without end."""

    def next(self, n: int) -> Floats:
        """Return the next n arrival times."""


class Renewal:
    """Independent gaps."""

    def __init__(self, gaps: Sampler, rate: float) -> None:
        self._gaps = gaps
        self._rate = rate
        self._last = 0.0

    def next(self, n: int) -> Floats:
        times = self._gaps(n)
        times /= self._rate
        times[0] += self._last  # and then add up in order: the same roundings for any n
        np.add.accumulate(times, out=times)  # what np.cumsum calls in the end
        self._last = times[-1]
        return times


class Clockwork:
    """Equal gaps from a random phase on."""

    def __init__(self, phase: float, rate: float) -> None:
        self._phase = phase
        self._rate = rate
        self._count = 0

    def next(self, n: int) -> Floats:
        times = np.arange(self._count, self._count + n, dtype=np.float64)
        times += self._phase
        times /= self._rate
        self._count += n
        return times


class Chain:
    """The path of a modulating chain, drawn as far as it is asked for and kept from its slowest reader on."""

    _PIECES = 256

    def __init__(self, law: MarkovModulated, seed: SeedSequence) -> None:
        sojourns = np.array(law.sojourns)
        rates = np.array(law.rates)
        weights = sojourns / sojourns.sum()  # each state is entered equally often
        self._sojourns = sojourns
        self._rates = rates / (weights @ rates)
        self._stays = sampler(Poisson(), seed)
        self._jumps = generator(seed, 1)
        self._state = int(np.searchsorted(np.cumsum(weights)[:-1], self._jumps.random(), side="right"))
        self._reached: list[float] = []
        # Piece i has the rate _rate[i] and ends at the time _end[i] and the operational time _clock[i].
        self._end = np.zeros(1)
        self._clock = np.zeros(1)
        self._rate = np.ones(1)

    def join(self) -> int:
        """Return a new reader's number."""
        self._reached.append(0.0)
        return len(self._reached) - 1

    def invert(self, reader: int, clock: Floats) -> Floats:
        """Return X^-1 of ascending operational times that lie after all that this reader has asked for."""
        if clock[-1] > self._clock[-1]:
            self._forget()
            while clock[-1] > self._clock[-1]:
                self._extend()
        self._reached[reader] = clock[-1]
        piece = np.searchsorted(self._clock, clock, side="left")  # the first that reaches: never one of rate 0
        before = piece - 1
        times = self._end[before] + (clock - self._clock[before]) / self._rate[piece]
        return np.minimum(times, self._end[piece])  # rounding must not lead into the next piece

    def _forget(self) -> None:
        done = int(np.searchsorted(self._clock, min(self._reached), side="left")) - 1
        if done > 0:
            self._end, self._clock, self._rate = self._end[done:], self._clock[done:], self._rate[done:]

    def _extend(self) -> None:
        n = max(self._PIECES, len(self._end))  # doubling: the work stays linear in the path
        states = len(self._sojourns)
        steps = 1 + (self._jumps.random(n) * (states - 1)).astype(np.int64)
        after = (self._state + np.cumsum(steps)) % states
        now = np.concatenate(([self._state], after[:-1]))
        stay = self._stays(n) * self._sojourns[now]
        self._state = int(after[-1])
        rate = self._rates[now]
        end = np.cumsum(np.concatenate((self._end[-1:], stay)))[1:]
        clock = np.cumsum(np.concatenate((self._clock[-1:], stay * rate)))[1:]
        self._end = np.concatenate((self._end, end))
        self._clock = np.concatenate((self._clock, clock))
        self._rate = np.concatenate((self._rate, rate))


class Modulated:
    """Poisson in the operational time of a chain."""

    _LEAST = np.finfo(np.float64).tiny

    def __init__(self, chain: Chain, gaps: Sampler, rate: float) -> None:
        self._chain = chain
        self._reader = chain.join()
        self._operational = Renewal(gaps, rate)

    def next(self, n: int) -> Floats:
        # An exponential may be drawn as 0, and the chain may start with a rate of 0: later than 0 is in a piece.
        return self._chain.invert(self._reader, np.maximum(self._operational.next(n), self._LEAST))


def processes(
    own: Sequence[Law | None], common: Law, rates: Floats, gaps: Sequence[SeedSequence], shared: SeedSequence
) -> list[ArrivalProcess | None]:
    """Return the arrival process of each type, None for a rate of 0.

    `own[j]` is the law of type j where it has its own. All types under a common Markov-modulated law follow one
    chain, drawn from `shared`; a type with a law of its own has a chain of its own.
    """
    chain = Chain(common, shared) if isinstance(common, MarkovModulated) else None
    return [
        _process(law or common, float(rate), seed, None if law else chain) if rate > 0 else None
        for law, rate, seed in zip(own, rates, gaps, strict=True)
    ]


def _check_pace(law: MarkovModulated, rate: float) -> None:
    """Refuse a chain that never rests: it would be drawn without end between two arrivals."""
    changes = 1.0 / max(rate * float(np.mean(law.sojourns)), 1e-300)
    if changes > MOST_CHANGES:
        raise InputError(
            f"the chain changes {changes:.3g} times between two arrivals of a type",
            where="arrivals.sojourns",
            remedy=f"make them longer: {1.0 / (rate * MOST_CHANGES):.3g} or more on average",
        )


def _process(law: Law, rate: float, seed: SeedSequence, chain: Chain | None) -> ArrivalProcess:
    if isinstance(law, Deterministic):
        return Clockwork(generator(seed, 0).random(), rate)
    if isinstance(law, MarkovModulated):
        _check_pace(law, rate)
        return Modulated(chain or Chain(law, child(seed, 2)), sampler(Poisson(), seed), rate)
    return Renewal(sampler(law, seed), rate)
