"""The live world: the wall clock, sockets, server dialects."""
