"""The virtual server: a state machine without a clock, I/O or equations of its own."""
