"""The engine's scheduler in virtual time, on a device model.

    model = find_device_model("h100-sxm/llama-3.1-8b")
    runner = SimulatedRunner.of(model, config)
    result = simulate(config, runner, OpenLoop(arrivals), observers=[writer])

    loop        the virtual time: who comes, what is planned, how far one may jump
    events      what comes from outside, and from whom
    answers     what each request lived through, for the records
    journal     a journal of the engine as the source of a simulation: the same calls, the same plans

No policy is written here: the scheduler is the engine's object, given other `now`s. A result is a function of load,
settings and device model alone; there is no clock, no sleep and no thread.
"""

from chairlift.sim.events import Arrival, Departure, Event, InputEnd, OpenLoop, Source, Switch
from chairlift.sim.loop import Refusals, Simulation, SimulationResult, simulate

__all__ = [
    "Arrival",
    "Departure",
    "Event",
    "InputEnd",
    "OpenLoop",
    "Refusals",
    "Simulation",
    "SimulationResult",
    "Source",
    "Switch",
    "simulate",
]
