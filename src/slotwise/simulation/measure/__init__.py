"""What is counted during a run: `meter` and `measuring` in compiled code, `measurements` as the figures of one replication.

Imports core and compiler.
"""
