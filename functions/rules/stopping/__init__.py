"""Decides which runs go on: what a run's progress report is answered, by its rank among runs of its kind."""
