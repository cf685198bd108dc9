"""Nightjar's version; the wheel takes its own from here."""

VERSION = "0.2.0"
