"""Measuring the running machine, so that it can be simulated.

probes      which steps are measured
steps       executes them without a scheduler
measure     in rounds, in random order
host        what the device waits for between two steps, on the engine as it serves
calibrate   all of it, and a device model from it
"""
