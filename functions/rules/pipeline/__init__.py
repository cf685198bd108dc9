"""The speculative pipeline: the next program is drafted while its batch runs, from what the batch will come to."""
