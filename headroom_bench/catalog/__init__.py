"""What is known about models, hardware, quantizations, runtimes and networks, with sources."""
