"""Figures and pages: one self-contained HTML file, its data beside it, and a manifest of the run."""
