"""Tokenizing, incremental detokenizing and chat templates."""
