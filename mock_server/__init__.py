"""The virtual box on the wall clock, behind an HTTP front that speaks a server's dialect."""
