"""Loads: what is asked of a target, when, how long, and sharing what.

    load = read_load(Path("chat.toml"))             # or load_from_pairs(["arrivals=poisson", "arrivals.rate=4", ...])
    schedule = Schedule(load)                       # requests, made one by one, the same every time
    print(describe(schedule).table())               # before the run
    playback = Playback(schedule)                   # who is due when, given who has ended when
    prompts = Prompts(load, SafeIds.of(vocab_size, control_ids), salt=run_id)
    prompts.tokens(request)                         # exactly request.prompt_tokens ids
    LoadRecord.of(schedule)                         # for the run's manifest; diff() tells two of them apart

Pure but for reading files: no engine, no HTTP, no clock.
"""

from chairlift.lab.loads.compare import Difference, LoadDiff, LoadRecord, diff, fingerprint
from chairlift.lab.loads.describe import Description, describe
from chairlift.lab.loads.files import load_from_pairs, read_load, read_table, write_toml
from chairlift.lab.loads.fitting import Guess
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.playback import Due, Playback
from chairlift.lab.loads.prompts import Prompts, SafeIds
from chairlift.lab.loads.request import After, At, ScheduledRequest, Segment, WhenFree
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.loads.text import ChatPrompt, Message, TextPrompt, TextPrompts

__all__ = [
    "After",
    "At",
    "ChatPrompt",
    "Description",
    "Difference",
    "Due",
    "Guess",
    "Load",
    "LoadDiff",
    "LoadRecord",
    "Message",
    "Playback",
    "Prompts",
    "SafeIds",
    "Schedule",
    "ScheduledRequest",
    "Segment",
    "TextPrompt",
    "TextPrompts",
    "WhenFree",
    "describe",
    "diff",
    "fingerprint",
    "load_from_pairs",
    "read_load",
    "read_table",
    "write_toml",
]
