"""Whole experiments as plain functions over the rooms below."""
