"""Measurements a person starts; none of them is a timed test."""
