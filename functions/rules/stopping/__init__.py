"""Early stopping: whether a run goes on, stops or gets more time, by its rank among runs of its kind."""
