"""Figures and pages: one self-contained HTML file, its data beside it, and a manifest of the run.

- `comparison`: the page of `slotwise compare --out`; start there. `blocks`: what pages are made of, `page` the file.
- `stepthrough`: a scheduler event by event. `claims`, `manifest`: results of claims, and what was run.

Imports simulation, scheduling, display and what is below them.
"""

CONTENTS = ("index.html", "manifest.json", "data")  # what the folder of a report holds
