"""What must be true of a lab: counters, indexes and leases against the records."""
