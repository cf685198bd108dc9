"""Runs on GPUs: training, leases from the worker's side, early stopping, time limits."""
