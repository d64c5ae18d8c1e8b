"""The step loop, sampling and offline generation."""
