"""The paper's evaluation (section 7) and what goes beyond it: settings, sweeps, claims, and the report on them."""
