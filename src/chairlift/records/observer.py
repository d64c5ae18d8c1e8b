"""Who is shown the records as they are made."""

from __future__ import annotations

from chairlift.records.schema import BatchRecord, DecisionRecord, Record, RequestRecord, ShareRecord, StepRecord


class Observer:
    """Override what you want to see. Called on the step loop's thread, between steps: be quick.

    An observer that raises is logged and not called again; the engine goes on.
    """

    def on_step(self, record: StepRecord) -> None:
        """A step was committed."""

    def on_share(self, record: ShareRecord) -> None:
        """A request's share of the steps has changed; the step's own record follows."""

    def on_request(self, record: RequestRecord) -> None:
        """A request's result left."""

    def on_decision(self, record: DecisionRecord) -> None:
        """The scheduler changed its mind about a request."""

    def on_batch(self, record: BatchRecord) -> None:
        """A closed batch has ended."""


def show(observer: Observer, record: Record) -> None:
    """Call the method that a record is for."""
    match record:
        case StepRecord():
            observer.on_step(record)
        case ShareRecord():
            observer.on_share(record)
        case RequestRecord():
            observer.on_request(record)
        case DecisionRecord():
            observer.on_decision(record)
        case BatchRecord():
            observer.on_batch(record)
