"""The engine: the step loop, sampling, the Python API and offline batches."""
