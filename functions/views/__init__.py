"""What answers show of a record, with hints and messages."""
