"""How a device's memory is divided for a model, how many sequences that holds, and how many of them pay.

described   a model's sizes from a config.json, a directory, a GGUF file or by name
lengths     what sequences of a load hold, on average and at their peak
useful      throughput against concurrency, and where more sequences stop paying
advice      all answers to one question
report      the same as lines for people
"""
