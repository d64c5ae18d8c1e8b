"""Advice from models, loads, device models and records. It decides nothing that it cannot show figures for.

memory     what fits, and how much of it pays
flags      settings in the words of other frameworks
doctor     what is wrong with a run or a server, why, and what to change
"""
