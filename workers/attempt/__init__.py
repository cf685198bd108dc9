"""One attempt on one device: checkout, run, limits, parsing, proof of emptiness."""
