"""What answers show."""
