"""`python -m benchmarks.live [startup] [short] [load] [sizes]`, or `hostile`: the live service, beside other tools in the same run."""

from __future__ import annotations

import argparse
import importlib

PARTS = ("startup", "short", "load", "sizes")


def main() -> int:
    """Run them; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"some of: {', '.join(PARTS)}")
    missed = 0
    for part in parser.parse_args().parts or PARTS:
        for row in importlib.import_module(f"benchmarks.live.{part}").run():
            goal = f"{row['goal']}: {'met' if row['met'] else 'MISSED'}" if "goal" in row else ""
            missed += bool(goal) and not row["met"]
            print(f"{row['name']:58} {row['value']:12,.4g} {row['unit']:8} {goal:32} {row['detail']}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
