"""Bytes, FLOPs and the time of a pass: pure functions, no clock, no I/O."""
