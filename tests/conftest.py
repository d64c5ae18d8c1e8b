"""What every test shares: hypothesis profiles, the offline hub, and where the demo model is."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from chairlift import demo_model

# Nothing in the suite may reach a hub; set before any library reads it.
os.environ["HF_HUB_OFFLINE"] = "1"

# The machine may be busy, so no test is judged by its speed: deadlines are off in both profiles.
settings.register_profile(
    "suite",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fuzz",
    derandomize=False,
    deadline=None,
    max_examples=2_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Put all tests that run the model on one xdist worker: it uses both cores, and its memory is needed once."""
    if item.get_closest_marker("model"):
        item.add_marker(pytest.mark.xdist_group("model"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio alone, as the server does."""
    return "asyncio"


@pytest.fixture(scope="session")
def demo_model_path() -> Path:
    """The demo model's file; a test that asks for it also carries the marker `model`."""
    return demo_model.locate()
