"""Processes around a run: servers that a command starts, and what is left when one is killed."""
