"""What every function is written with, and what every process has."""
