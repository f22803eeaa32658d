"""What a policy is to the rest of the package: docs/guides/own-policy.md is the guide, `policy` the class to read first.

- `policy`, `hooks`: the base class, and how its functions reach compiled code.
- `memory`, `learnt`: what a policy remembers, and how that is written into a situation.
- `claims`, `reasons`, `view`: what is proven of a policy, why a job waits, what a policy may look at to say so.

Imports compiler, errors, model and the rest of core.
"""
