"""The scheduling core: the state of a cluster, its indexes, the steps that change it, and the contract of a policy.

- `state`: the record that every kernel reads; start there, then `steps`: what happens at each event.
- `queues`, `moves`, `chance`: waiting jobs, starting a job, random numbers of the policy.
- `indexes`: which server fits, which waiting job fits, which configuration weighs most.
- `contract`: what a policy is: hooks, memory, claims, reasons.

Imports compiler, errors, model and packing. Decides nothing by itself: `slotwise.policies` does.
"""
