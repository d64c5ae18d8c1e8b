"""What can be run again and again, each time with other settings: a model in this process, a simulation, a server.

A study compares settings, so it needs more than a target, which lives for one run. A subject makes a target for each
run. Nothing of one run is left for the next: every run has an engine of its own with an empty KV pool, and prompts with
a fresh salt. (An engine that was once told that its input has ended cannot forget it.)

A server's settings are its own: it can be run again, but not otherwise.

    base             what a subject is
    model            a model in this process;  loaded: what stays of it between runs
    simulated        a device model
    server           a URL
    scheduler_time   what the scheduler itself cost in a run
"""

from chairlift.lab.subjects.base import Settings, Subject, SubjectKind
from chairlift.lab.subjects.model import ModelSubject
from chairlift.lab.subjects.server import ServerSubject
from chairlift.lab.subjects.simulated import SimulatedSubject

__all__ = ["ModelSubject", "ServerSubject", "Settings", "SimulatedSubject", "Subject", "SubjectKind"]
