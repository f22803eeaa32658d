"""Changing the cluster while jobs run: what a cluster file wants, how that differs from what runs, and the one journal row that makes it so.

- `target`: the cluster that a file describes, and the one that runs;
- `definition`: what a type or a class is apart from its name, and what fits where;
- `plan`: the differences, their effects on jobs and servers, and the journal row;
- `words`: a plan for people;
- `reshape`: the core after such a row.

A running job is never interrupted. It keeps the definition under which it was started until it ends; a server whose jobs do not fit the new
definition of its class drains first.
"""
