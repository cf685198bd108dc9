"""Simulated workers of a swarm, which drive the HTTP doors of a real server."""
