"""The scheduling core: the state of a cluster, its indexes, the steps that change it, and the contract of a policy.

- `state`: the record that every kernel reads; start there, then `steps` (what happens to a job) and `server_steps` (to a server).
- `store`: the arrays behind the record, made and grown. `records`: what this record and those of the simulator share. `chance`: random numbers of the policy. `sharing`: fair shares.
- `indexes`: which server fits, which waiting job fits, which configuration weighs most.
- `contract`: what a policy is: hooks, memory, claims, reasons.

Imports compiler, errors, model and packing. Decides nothing by itself: `slotwise.policies` does.
"""
