"""`python -m slotwise` is the `slotwise` command."""

from slotwise.cli.main import main

main()
