"""Servers that we start, and those whose settings we change while they run."""
