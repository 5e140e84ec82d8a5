"""Servers to measure against: one that misbehaves as a script says, one that keeps an exact pace.

`scripted` writes given bytes at given times and remembers when it did; `fixtures` holds the answers
that a client has to get right; `paced` is a fast server in a process of its own that knows when it
wrote every token. They ship with the package, as the fake engine does, for whoever tests a client.
"""
