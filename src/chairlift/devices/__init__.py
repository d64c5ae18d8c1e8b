"""Device models: how long a step takes and how much memory there is.

    shape      what a step costs by, counted from a plan
    model      how long it takes, exactly, one step or a run of them;  curve, valid, memory: its parts
    file       a device model as readable TOML;  toml, quantities: beneath it
    fit        coefficients from measured steps;  samples, nonnegative: beneath it
    table      measured tables as others publish them;  from_table: device models of them
    analytic   estimates from a model's sizes (transformer) and a device sheet (sheet)
    registry   all of these by name or path
    against_table   how far the estimates are from a measured table

Only fitting needs numpy; whatever a simulation touches is standard library.
"""
