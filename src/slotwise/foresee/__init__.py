"""Look ahead from a situation: when waiting jobs start, what would change the queues, which free capacity nothing can use.

- `ensemble` runs many copies of a situation forward; start there. `arrivals`, `services`, `history`, `recent`: what is drawn for the future.
- `tracking`, `correction`: how forecasts came out, and what is learnt from that. `whatif`, `change`, `fragments`: questions.

Imports simulation, scheduling and model.
"""
