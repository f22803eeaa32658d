"""Figures and pages: one self-contained HTML file, its data beside it, and a manifest of the run."""

CONTENTS = ("index.html", "manifest.json", "data")  # what the folder of a report holds
