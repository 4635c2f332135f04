"""How many people a language-model server serves before its answers get bad."""

__version__ = "0.1.0"
