"""Tokens: who may call the lab from outside."""
