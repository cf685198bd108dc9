"""Nightjar's version; the wheel takes its own from here."""

VERSION = "0.1.0"
