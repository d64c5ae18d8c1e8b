"""What settings come to on a load and a device model: figures, or the reason why there are none.

targets    what is to be best, and which limits must hold
rounds     a load cut to a size that can be lived through many times, and its repeats
outcome    what came of settings: figures, or a refusal
watch      what only the simulated engine sees: rows, KV blocks, what requests waited for
run        one simulation
pool       many of them, on all cores
capacity   the highest rate of a load at which every limit holds
base       the settings that a search starts from
asked      a load from whatever its owner has
relief     the same device with more of one thing
"""
