"""The events process: runs the functions that events and the clock fire. `python -P -m triggers.events`."""
