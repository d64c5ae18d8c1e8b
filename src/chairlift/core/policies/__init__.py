"""The three batching policies. Each is a page: a read-only view in, a choice out; the side effects are the
scheduler's.
"""
