"""The commands: arguments in, tables out, no logic.

- `main` lists the commands, `light` the quick ones that talk to a service; start there.
- `tables`, `columns`, `console`, `output`: how results are printed. Every other module is one command or one group of them.

May import everything. Examples in help texts are run by `tests/cli`.
"""
