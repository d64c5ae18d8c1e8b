import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from chairlift.runners.openvino.signal_stack import SignalStack, signal_stack_kept

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux's stack_t is known here")

AFTER_A_MODEL = """
import os, signal, sys
from chairlift import LLM

with LLM(sys.argv[1], num_kv_blocks=64, max_num_batched_tokens=64):
    pass
signal.signal(signal.SIGTERM, lambda *_: print("handled", flush=True))
os.kill(os.getpid(), signal.SIGTERM)
"""


def current() -> tuple[int | None, int, int]:
    """The calling thread's signal stack."""
    stack = SignalStack()
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack))
    return stack.base, stack.flags, stack.size


def test_a_stack_that_was_set_inside_is_taken_back() -> None:
    """After the `with` the thread has the stack from before, whoever set another one inside."""
    before = current()
    memory = ctypes.create_string_buffer(1 << 16)
    with signal_stack_kept():
        inside = SignalStack(ctypes.addressof(memory), 0, len(memory))
        assert ctypes.CDLL(None).sigaltstack(ctypes.byref(inside), None) == 0
        assert current() != before

    assert current() == before


@pytest.mark.model
def test_a_signal_after_a_model_was_closed_does_not_end_the_process(demo_model_path: Path) -> None:
    """A handler runs as it would have without a model: Ctrl-C after a close is no segmentation fault."""
    command = [sys.executable, "-c", AFTER_A_MODEL, str(demo_model_path)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr
