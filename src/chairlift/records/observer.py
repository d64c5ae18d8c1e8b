"""Who is shown the records as they are made."""

from __future__ import annotations

from chairlift.records.schema import BatchRecord, DecisionRecord, RequestRecord, StepRecord


class Observer:
    """Override what you want to see. Called on the step loop's thread, between steps: be quick.

    An observer that raises is logged and not called again; the engine goes on.
    """

    def on_step(self, record: StepRecord) -> None:
        """A step was committed."""

    def on_request(self, record: RequestRecord) -> None:
        """A request's result left."""

    def on_decision(self, record: DecisionRecord) -> None:
        """The scheduler changed its mind about a request."""

    def on_batch(self, record: BatchRecord) -> None:
        """A closed batch has ended."""
