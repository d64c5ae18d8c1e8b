import threading

from chairlift.core.request import FinishReason
from chairlift.engine.loop import StepThread
from chairlift.engine.outputs import OutputDelta
from tests.engine.tiny import GatedRunner, Inbox, make_core, submit


class Waiting(Inbox):
    """An inbox that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.done = threading.Event()

    def __call__(self, delta: OutputDelta) -> None:
        super().__call__(delta)
        if delta.finish_reason is not None:
            self.done.set()


def test_it_sleeps_until_it_is_woken() -> None:
    """Work handed to the core while nothing runs is seen when the bell rings."""
    core, inbox = make_core(), Waiting()
    thread = StepThread(core)
    thread.start()
    submit(core, "a", inbox, max_tokens=3)

    thread.wake()

    assert inbox.done.wait(30)
    thread.stop()


def test_it_wakes_by_itself_when_a_batch_is_due() -> None:
    """A dynamic batch that is not full leaves when its delay is over, without a bell."""
    core, inbox = make_core(policy="dynamic", max_batch_size=8, max_queue_delay=1_000_000), Waiting()
    thread = StepThread(core)
    submit(core, "a", inbox, max_tokens=3)
    thread.start()

    assert inbox.done.wait(30)
    thread.stop()


def test_an_abandoned_request_is_cancelled_before_the_next_step() -> None:
    """Abandoning only rings: the thread cancels when its step is over."""
    runner, inbox = GatedRunner(), Waiting()
    core = make_core(runner)
    thread = StepThread(core)
    submit(core, "a", inbox, max_tokens=100)
    thread.start()

    thread.abandon("a", inbox)
    runner.open()

    assert inbox.done.wait(30)
    assert inbox.answer("a").finish_reason is FinishReason.CANCELLED
    assert inbox.answer("a").output_tokens <= 1
    thread.stop()


def test_stopping_twice_is_stopping() -> None:
    """Health is red once it has stopped, and a second stop does nothing."""
    thread = StepThread(make_core())
    thread.start()
    assert thread.health().ok

    thread.stop()
    thread.stop(drain=True)

    assert not thread.running
    assert "does not run" in thread.health().cause
