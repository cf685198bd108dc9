"""Which experiment gets which GPU, and whether a GPU is healthy."""
