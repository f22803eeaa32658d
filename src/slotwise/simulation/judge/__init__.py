"""What the figures of several replications say: means with intervals, stable or growing, and lower bounds.

`judging` gives the verdict, from `drift`; `statistics` and `student` the intervals. Imports simulation.measure and theory.
"""
