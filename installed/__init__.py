"""Nightjar as it is installed: one package, which holds those of a checkout."""
