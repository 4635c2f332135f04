"""The simulated world: the same crowd in virtual time."""
