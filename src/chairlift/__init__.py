"""Chairlift: an LLM inference server with three batching policies, and the laboratory that goes with it."""

__version__ = "0.1.0"
