"""OpenVINO on the CPU: reads GGUF files and Hugging Face directories, and runs them with paged attention.

Import what is needed from the modules: this package itself loads nothing.
"""
