"""The lab itself: status, archive, events, schedules, functions."""
