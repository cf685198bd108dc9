"""Texts in and out, without input or output: metrics block, results.tsv, constants of a train.py, patches."""
