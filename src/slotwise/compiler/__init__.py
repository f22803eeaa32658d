"""The seam between kernels and the compiler: the rest of the package imports `kernel` and the views from here and nothing of Numba's inside.

- `kernel`: the decorator, the switches and the cache on disk; start reading there.
- `whole`, `lowering`: the compiler of our own, which a switch leaves out.
- `views`: arrays by address, bits and prefetching, with and without the compiler.

Imports nothing of slotwise.
"""
