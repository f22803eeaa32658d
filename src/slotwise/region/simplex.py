"""The linear program of the capacity region over the configurations met so far, solved on from where it stood when there are more of them.

    max t   such that   sum_k x_k k - s = base + t * direction,   sum_{k of class c} x_k = 1 for each class c,   x, s, t >= 0.

With base = 0 one configuration for each class and the slack s_j of each type are a feasible start (t = 0), so the simplex method needs no
first phase. A new configuration leaves the basis feasible, and the method goes on with it. With base = direction

    max s_j   is how much more of type j alone fits beside base,

and the optimal basis of the program with base = 0 is a feasible start for each j: only t is less, by 1.

The inverse of the basis is kept and made anew now and then. Dantzig's rule, then Bland's, which cannot cycle, once steps of length 0 abound.
Whether an answer is right is for the caller to see, from both sides (`slotwise.region.ray`); rounding may lead a program astray.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

PIVOTS = 50_000  # of one call of `solve`, at most
ANEW = 500  # pivots after which the inverse is made anew
STUCK = 40  # steps of length 0 after which Bland's rule takes over
OPTIMAL = 1e-12
LEAST_PIVOT = 1e-10  # an entry below it counts as 0
T = 0  # the column of t; those of the slacks follow it, then the configurations


class Program:
    """Columns, a feasible basis, and the inverse of its matrix. Configurations hold few types each, so only what is not 0 is kept of them."""

    def __init__(self, direction: Vector, n_classes: int) -> None:
        J = self.n_types = len(direction)
        self._direction = direction
        self._right = np.concatenate([np.zeros(J), np.ones(n_classes)])
        self._n = 0
        """configurations"""
        self._types = np.zeros((64, 2), np.int64)
        """of each configuration the rows in which it has something: its class's, then those of its types"""
        self._carries = np.zeros((64, 2))
        self._basis = np.concatenate([1 + np.arange(J), np.full(n_classes, -1)])
        self._goal = T
        self._inverse: Vector = np.zeros((0, 0))
        self._product: Vector = np.zeros((0, 0))
        """room for what is taken off it"""
        self._values: Vector = np.zeros(0)

    def add(self, carries: Vector, c: int) -> None:
        """Add a configuration of class c: what it carries if all servers of the class hold it."""
        types = np.flatnonzero(carries)
        long, wide = self._types.shape
        if self._n == long or len(types) >= wide:
            more = (0, long if self._n == long else 0), (0, max(0, len(types) + 1 - wide))
            self._types, self._carries = np.pad(self._types, more), np.pad(self._carries, more)
        used = slice(1, 1 + len(types))
        self._types[self._n, 0], self._carries[self._n, 0] = self.n_types + c, 1.0
        self._types[self._n, used], self._carries[self._n, used] = types, carries[types]
        if self._basis[self.n_types + c] < 0:  # the first of its class is part of the first basis
            self._basis[self.n_types + c] = 1 + self.n_types + self._n
        self._n += 1

    def beside(self, j: int) -> Program:
        """Return another program: the largest slack of type j beside the load that is the direction here. This one
        must be solved, with t >= 1."""
        other = deepcopy(self)
        other._right[: self.n_types] = self._direction
        other._values = other._inverse @ other._right
        other._goal = 1 + j
        return other

    def solve(self) -> bool:
        """Go on to the optimum over the columns there are; False where that was not reached."""
        if len(self._values) == 0 and not self._anew():
            return False
        stuck = 0
        for pivots in range(1, PIVOTS + 1):
            reduced = self._reduced(self._prices())
            if stuck < STUCK:
                entering = int(np.argmin(reduced))
            else:
                entering = int(np.argmax(reduced < -OPTIMAL))
            if reduced[entering] >= -OPTIMAL:
                return True
            column = self._seen_from_the_basis(entering)
            rising = np.flatnonzero(column > LEAST_PIVOT)
            if len(rising) == 0:
                return False
            ratios = np.maximum(self._values[rising], 0.0) / column[rising]
            least = float(ratios.min())
            ties = rising[ratios <= least * (1 + 1e-12)]
            leaving = int(ties[np.argmin(self._basis[ties])] if stuck >= STUCK else ties[np.argmax(column[ties])])
            stuck = stuck + 1 if least <= 1e-14 else 0
            self._basis[leaving] = entering
            if pivots % ANEW == 0:
                if not self._anew():
                    return False
                continue
            self._values -= least * column
            self._values[leaving] = least
            pivot = self._inverse[leaving] / column[leaving]
            column[leaving] = 0.0
            self._inverse -= np.multiply.outer(column, pivot, out=self._product)
            self._inverse[leaving] = pivot
        return False

    @property
    def value(self) -> float:
        """Of the goal, as prices tell it."""
        return float(self._prices() @ self._right)

    @property
    def prices(self) -> Vector:
        """Of the types."""
        return np.maximum(-self._prices()[: self.n_types], 0.0)

    @property
    def shares(self) -> Vector:
        """Of each configuration, in the order in which they were added."""
        found = np.zeros(1 + self.n_types + self._n)
        found[self._basis] = np.maximum(self._values, 0.0)
        return found[1 + self.n_types :]

    def _prices(self) -> Vector:
        """Return what a unit of each right-hand side adds to the goal: its row of the inverse, or nothing while the goal is not in the basis."""
        at = np.flatnonzero(self._basis == self._goal)
        return self._inverse[at[0]] if len(at) else np.zeros(len(self._right))

    def _reduced(self, prices: Vector) -> Vector:
        """Return what each column costs beyond what it adds to the goal, at these prices."""
        types, carries = self._types[: self._n], self._carries[: self._n]
        of_types = prices[: self.n_types]
        spent = np.einsum("ij,ij->i", carries, prices[types])
        reduced = np.concatenate([[-float(of_types @ self._direction)], -of_types, spent])
        reduced[self._goal] -= 1.0
        reduced[self._basis] = 0.0
        return reduced

    def _seen_from_the_basis(self, i: int) -> Vector:
        """Return B^-1 a of column i."""
        if i == T:
            return -self._inverse[:, : self.n_types] @ self._direction
        if i <= self.n_types:
            return -self._inverse[:, i - 1]
        k = i - 1 - self.n_types
        return np.asarray(self._inverse[:, self._types[k]] @ self._carries[k])

    def _anew(self) -> bool:
        """Make the inverse; False where there is none, or where a class has no configuration."""
        if (self._basis < 0).any():
            return False
        J, m = self.n_types, len(self._right)
        matrix = np.zeros((m, m))
        for at, i in enumerate(self._basis):
            if i == T:
                matrix[:J, at] = -self._direction
            elif i <= J:
                matrix[i - 1, at] = -1.0
            else:
                np.add.at(matrix[:, at], self._types[i - 1 - J], self._carries[i - 1 - J])
        try:
            self._inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
        except np.linalg.LinAlgError:
            return False
        self._product = np.empty_like(self._inverse)
        self._values = self._inverse @ self._right
        return True
