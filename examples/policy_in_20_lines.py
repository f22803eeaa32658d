"""A policy in twenty lines: types in the order of the scenario, each job on the first server with enough free capacity; compared with best-fit."""

import slotwise
from slotwise.scheduling.api import FitOptions, Policy, State, first_fit, need, queue_length, set_need, start


def serve(s: State, _a: int, _b: int) -> None:
    """Start every waiting job that fits, earlier types first."""
    for j in range(s.n_types):
        while queue_length(s)[j] > 0:
            set_need(s, j)
            server = first_fit(s, need(s), 0)
            if server < 0:
                break
            start(s, j, server)


class TypesInOrder(Policy):
    name, summary = "types-in-order", "earlier types first, each job on the first server that fits"
    Options, keeps = FitOptions, frozenset({"free", "tree"})
    arrive = complete = join = cancel = staticmethod(serve)


def main() -> None:
    print(slotwise.compare("table1", [TypesInOrder, "best-fit"], overrides=["run.events=5000"]))


if __name__ == "__main__":
    main()
