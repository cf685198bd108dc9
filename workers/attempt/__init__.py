"""One attempt on one device: checkout, run, limits, parsing, check that nothing is left."""
