"""How runs come to a worker, and their results to the lab: over HTTP, for all workers alike."""
