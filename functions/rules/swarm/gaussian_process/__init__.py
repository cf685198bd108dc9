"""Proposes configs by a model of the runs so far, a Gaussian process; see `sampler`."""
