"""What fires a function: HTTP, events, the clock and the command line."""
