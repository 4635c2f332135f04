"""The crowd: personas in closed loops, written once, run in any world."""
