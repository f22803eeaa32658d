"""Indexes over servers, waiting jobs and configurations, each kept up to date by `core.steps`.

- Servers: `bitmap` (sets of servers), `firsttree` (lowest number that fits), `fitindex` (best fit, counts), `shortest` (shortest queue).
- Waiting jobs: `line` (searches), on the tree of `linetree`.
- Configurations: `weights` (the heaviest for a server), on the running sums of `followed`.

Imports compiler, packing and `core.state`; no policy.
"""
