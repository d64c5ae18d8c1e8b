"""Settings in the words of other frameworks: command lines and configuration files, each flag with its reason.

    settings   what is said: SchedulerConfig and MemorySettings, and which of it matters under a policy
    mapping    how each framework says it: the data file `data/frameworks.toml`, read and checked
    convert    values in the units and words of a framework
    flags      both together: flags_for()
    render     a command line, YAML, protobuf's text format

What a framework cannot express is said, never dropped.
"""
