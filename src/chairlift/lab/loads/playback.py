"""A schedule as it goes on: who is due when, given who has ended when. The same for a client and a simulator.

Pure: time is an argument, in nanoseconds from the load's start. Requests are read from the schedule as late as
possible, so that a million of them take no room.

Order of side effects: an end frees its user or its followers; what became due is entered; what is due is handed out.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass

from chairlift.core.errors import ContractError
from chairlift.core.request import Nanoseconds
from chairlift.lab.loads.arrivals import ClosedLoop
from chairlift.lab.loads.request import After, At, ScheduledRequest, WhenFree
from chairlift.lab.loads.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Due:
    """A request to be sent, and the moment it was due: latencies count from there, however late it is sent."""

    request: ScheduledRequest
    at: Nanoseconds
    warmup: bool
    """Sent, but not counted."""


class Playback:
    """Hands out requests as they become due, each once.

    Attributes:
        started: requests handed out.
        cut: requests that will not start, since the turn before them failed or their time came after the load's end.
    """

    def __init__(self, schedule: Schedule) -> None:
        load = schedule.load
        self.started = self.cut = 0
        self._load = load
        self._rest = iter(schedule)
        self._next = next(self._rest, None)
        self._due: list[tuple[Nanoseconds, int, ScheduledRequest]] = []
        self._waiting: dict[int, list[ScheduledRequest]] = {}  # by the request they wait for
        self._unstarted: set[int] = set()  # read from the schedule: due at a known time, or waiting
        self._running: set[int] = set()
        self._broken: set[int] = set()  # failed or cut: whoever would follow is cut
        self._user: dict[int, int] = {}  # of a request, in a closed loop
        self._tasks: Counter[int] = Counter()  # requests of a user that have not ended
        users = load.arrivals.users if isinstance(load.arrivals, ClosedLoop) else 0
        self._free: list[tuple[Nanoseconds, int]] = [(0, user) for user in range(users)]

    @property
    def in_flight(self) -> int:
        """Requests handed out that have not ended."""
        return len(self._running)

    @property
    def done(self) -> bool:
        """Nothing is in flight and nothing will start."""
        return not self._running and not self._unstarted and self._moment() is None

    def exhausted(self, now: Nanoseconds) -> bool:
        """Whether nothing further will start, whatever ends when."""
        if self._unstarted:
            return False
        return self._next is None or (isinstance(self._next.start, WhenFree) and self._over(now))

    def next_due(self) -> Nanoseconds | None:
        """When the next request is due. None: not before one in flight has ended, or never."""
        known = self._due[0][0] if self._due else None
        unread = self._moment()
        return min((moment for moment in (known, unread) if moment is not None), default=None)

    def due(self, now: Nanoseconds) -> list[Due]:
        """Everything due by now that was not handed out before, in order of the moments due."""
        while (moment := self._moment()) is not None and moment <= now:
            self._read(moment)
        ready = []
        while self._due and self._due[0][0] <= now:
            at, index, request = heapq.heappop(self._due)
            self._unstarted.remove(index)
            self._running.add(index)
            ready.append(Due(request, at, warmup=self._load.is_warmup(index, at)))
        self.started += len(ready)
        return ready

    def finished(self, index: int, now: Nanoseconds, *, failed: bool = False) -> None:
        """A request that was handed out has ended. If it failed, the rest of its session is cut.

        Raises:
            ContractError: it was not handed out, or has ended already.
        """
        if index not in self._running:
            raise ContractError(f"request {index} has ended, but it is not in flight.")
        self._running.remove(index)
        if failed:
            self._broken.add(index)
        for follower in self._waiting.pop(index, ()):
            self._follow(follower, now)
        self._release(index, now)

    def _moment(self) -> Nanoseconds | None:
        """When the schedule's next request is to be read. None: there is none, or no user is free for it."""
        if self._next is None:
            return None
        match self._next.start:
            case At(due=due):
                return due
            case After(not_before=not_before):
                return not_before
            case WhenFree(think=think, not_before=not_before):
                moment = max(self._free[0][0] + think, not_before) if self._free else None
                return None if moment is None or self._over(moment) else moment

    def _read(self, moment: Nanoseconds) -> None:
        """Take the next request from the schedule, at its moment."""
        request, self._next = self._next, next(self._rest, None)
        if request is None:
            return
        self._unstarted.add(request.index)
        match request.start:
            case After(index=before):
                if (user := self._user.get(before)) is not None:
                    self._assign(request, user)
                if before in self._running or before in self._unstarted:
                    self._waiting.setdefault(before, []).append(request)
                else:
                    self._follow(request, moment)
            case WhenFree():
                self._assign(request, heapq.heappop(self._free)[1])
                self._enter(request, moment)
            case At():
                self._enter(request, moment)

    def _follow(self, request: ScheduledRequest, ended: Nanoseconds) -> None:
        """What a request waited for has ended."""
        match request.start:
            case After(index=before, think=think, not_before=not_before) if before not in self._broken:
                self._enter(request, max(ended + think, not_before))
            case _:
                self._cut(request, ended)

    def _enter(self, request: ScheduledRequest, at: Nanoseconds) -> None:
        if self._over(at):
            self._cut(request, at)
        else:
            heapq.heappush(self._due, (at, request.index, request))

    def _cut(self, request: ScheduledRequest, now: Nanoseconds) -> None:
        """It will not start, and neither will who would follow it."""
        self.cut += 1
        self._unstarted.remove(request.index)
        self._broken.add(request.index)
        for follower in self._waiting.pop(request.index, ()):
            self._cut(follower, now)
        self._release(request.index, now)

    def _assign(self, request: ScheduledRequest, user: int) -> None:
        self._user[request.index] = user
        self._tasks[user] += 1

    def _release(self, index: int, now: Nanoseconds) -> None:
        """A user whose last task has ended is free."""
        if (user := self._user.pop(index, None)) is not None:
            self._tasks[user] -= 1
            if not self._tasks[user]:
                heapq.heappush(self._free, (now, user))

    def _over(self, moment: Nanoseconds) -> bool:
        return self._load.duration is not None and moment >= self._load.duration
