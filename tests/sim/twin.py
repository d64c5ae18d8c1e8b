"""The real engine's core on the simulated device, on a clock that the device moves: what a simulation must equal."""

from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import RequestRefused
from chairlift.core.journal import Entry
from chairlift.core.plan import StepOutcome, StepPlan
from chairlift.core.request import FinishReason
from chairlift.engine.core import EngineCore
from chairlift.engine.outputs import OutputDelta
from chairlift.engine.params import SamplingParams
from chairlift.runners.simulated import SimulatedRunner
from chairlift.sim.events import Arrival, Departure, InputEnd, Source, Switch
from tests.engine.tiny import Clock, byte_tokenizer
from tests.sim.helpers import Witness

_ANSWERED = (FinishReason.STOP, FinishReason.LENGTH)


class _Device(SimulatedRunner):
    """Moves the clock on while it works, and lets in what comes meanwhile."""

    twin: "EngineTwin"

    def execute(self, plan: StepPlan) -> StepOutcome:
        done = self.run(plan)
        assert done.outcome is not None
        end = self.twin.clock.time + done.wall
        self.twin.receive(end)
        self.twin.clock.time = end
        return done.outcome


class EngineTwin:
    """EngineCore, driven by a source of events."""

    def __init__(self, config: SchedulerConfig, device: SimulatedRunner, source: Source) -> None:
        self.clock = Clock()
        self.witness = Witness()
        self.journal: list[Entry] = []
        self._source = source
        twin = _Device(device.model, device.memory or device.capacity(), device.range.outside)
        twin.twin = self
        self.core = EngineCore(
            config, twin, byte_tokenizer(), clock=self.clock, observers=[self.witness], journal=self.journal
        )

    def run(self) -> None:
        """To the end."""
        while True:
            self.receive(self.clock.time + 1)
            wait = self.core.step()
            if wait is None:
                continue
            times = [time for time in (wait.until, self._source.next()) if time is not None]
            if not times:
                assert not self.core.has_work
                return
            self.clock.time = min(times)

    def receive(self, before: int) -> None:
        """What comes before a time, at its own time."""
        while events := self._source.take(before):
            for event in events:
                self.clock.time = max(self.clock.time, event.time)
                match event:
                    case Arrival():
                        self._submit(event)
                    case Departure(_, request_id):
                        self.core.cancel(request_id)
                    case Switch(_, policy, changes):
                        self.core.switch_policy(policy, **changes)
                    case InputEnd():
                        self.core.end_input()

    def _submit(self, arrival: Arrival) -> None:
        assert arrival.output_tokens is None, "an engine has no such thing"
        request = arrival.request
        params = SamplingParams(
            max_tokens=request.max_tokens, temperature=0, ignore_eos=True, stop_token_ids=request.stop_ids
        )
        try:
            self.core.submit(
                list(request.prompt),
                params,
                request_id=request.request_id,
                sink=self._deliver,
                priority=request.priority,
                arrival=request.arrival,
            )
        except RequestRefused as error:
            self._source.refused(arrival, error.refused)

    def _deliver(self, delta: OutputDelta) -> None:
        if delta.finish_reason is not None:
            well = delta.finish_reason in _ANSWERED
            self._source.ended(delta.request_id, self.clock.time, well=well)
