"""Certificates as folders that anybody can verify."""
