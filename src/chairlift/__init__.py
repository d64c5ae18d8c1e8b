"""Chairlift: an LLM inference server with three batching policies, and the laboratory that goes with it."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = ["LLM", "OutputDelta", "RequestOutput", "SamplingParams", "__version__"]

if TYPE_CHECKING:
    from chairlift.engine.llm import LLM
    from chairlift.engine.outputs import OutputDelta, RequestOutput
    from chairlift.engine.params import SamplingParams
else:
    _HOMES = {
        "LLM": "chairlift.engine.llm",
        "OutputDelta": "chairlift.engine.outputs",
        "RequestOutput": "chairlift.engine.outputs",
        "SamplingParams": "chairlift.engine.params",
    }

    def __getattr__(name: str) -> object:
        """Load the engine when somebody asks for it: `import chairlift` alone loads nothing, so that the command line
        answers at once and the scheduler stays pure.
        """
        if name not in _HOMES:
            raise AttributeError(f"module 'chairlift' has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(_HOMES[name]), name)
