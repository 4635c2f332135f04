"""The server's own journal: parsed, followed while it grows, joined to the requests we sent."""
