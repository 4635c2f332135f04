"""A run on disk: written as it happens, readable whatever happened."""
