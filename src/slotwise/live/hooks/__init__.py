"""Hooks: what happens is told to other programs, by requests to URLs or by commands. Start reading at `delivering`.

`definition` reads [[hooks]] of the operator's file, `events` makes events of journal rows, `sending` makes one request or runs one command.
"""
