"""The paper's evaluation (section 7) and what goes beyond it: `slotwise reproduce`.

- `reproduce` runs all experiments and writes the report; start there. `settings`: sizes. `sweep`: many simulations at once.
- `examples`, `scaling`, `traces`, `readings`, `beyond`: one experiment each, made of `points`.
- `statements`, `grading`: the claims of the paper, and how each is judged.

Imports report, simulation, theory, workloads and what is below them.
"""
