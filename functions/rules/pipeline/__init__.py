"""The speculative pipeline: drafts the next program while a batch runs, from a prediction of its decision."""
