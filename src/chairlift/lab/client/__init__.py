"""The client: sends a load as scheduled, times what comes back, and watches itself."""
