"""Exports of a tag: what is read from a running lab, and one module for each format."""
