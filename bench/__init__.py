"""Benchmarks, each run by one command."""
