"""The policies of the paper and the earlier ones it is held against: Algorithm 1, M14 and G16.

Start with `algorithm1`, whose kernels are in `slots`; `sampling` holds G16. Imports core and packing.
"""
