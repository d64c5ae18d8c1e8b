"""The best settings of a policy for a load on a device, under limits.

space      the parameters of each policy and the values that are tried
searching  the search: Optuna's on the simulator, refusals and broken limits learned as constraints, resumable
neighbours what half and double of each parameter would do, and what binds it
advice     all of it together
order      one request alone, more and more of them, then lengths as they are: the order in which to tune by hand
verify     the best few on a real target, taking turns with the defaults
report     the same as lines for people
"""
