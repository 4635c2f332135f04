"""What a reader sees: summaries, tables, pages."""
