"""A worker that reaches its lab by HTTP alone."""
