"""Policies that look at free capacity only: best-fit, first-fit and their kin, Tetris, the scores of Kubernetes, myopic MaxWeight.

All are in `fitting`. Imports core.
"""
