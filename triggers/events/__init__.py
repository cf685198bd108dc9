"""The events process: runs what events and clock ticks fire. `python -P -m triggers.events`."""
