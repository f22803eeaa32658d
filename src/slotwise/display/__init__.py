"""How things look, in one place: numbers as text, colours, terminal tables, notebook tables, the style of figures.

- `numbers`: how many digits; start there. `palette`: colours and marks of policies.
- `terminal`, `notebook`: tables. `drawing`, `layers`: figures. `schedulers`: a scheduler in a line or in HTML.

Imports errors and files.
"""
