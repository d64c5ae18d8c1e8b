"""What is wrong with a run or a server, why, what to change, what that should do, and how sure that is.

    case       what is looked at: a run's records, or a server watched for a while
    facts      the figures that rules are made of, each defined once; unknown ones are None
    reckon     facts of a run from its records
    server     facts of a server from its metrics pages;  watch: getting them;  gpu: devices
    rules/     one small function for each cause, in the order symptom, input, configuration, resources, version
    diagnose   all rules on one case; what weighs most comes first
    effect     what a change should do, simulated
    report     the same as lines for people

Every finding shows the figures it was made on. A rule whose figures are not known says nothing.
"""
