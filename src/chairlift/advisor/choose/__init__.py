"""Which batching policy a load needs, and why.

search     each policy's best settings on the load, by a short search
decision   the simplest policy that is within a few per cent of continuous
binding    what holds the recommended policy back: memory, bandwidth, compute, a limit, or nothing but the load
tail       how much longer the outputs' tail must get before the answer changes
confidence how sure the answer is: the gap, its spread, the device model's error
advice     all of it together
report     the same as lines for people
"""
