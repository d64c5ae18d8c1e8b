import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "draw_slots.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("draw_slots", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["draw_slots"] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    return module


def test_the_picture_in_the_docs_is_up_to_date(script: ModuleType) -> None:
    """It is what the simulator and the slot picture make of the load today."""
    assert script.TARGET.read_text(encoding="utf-8") == script.picture()


def test_the_picture_stands_alone(script: ModuleType) -> None:
    """Well-formed, with all patterns that it uses, and the three policies in it."""
    svg = script.picture()
    root = ET.fromstring(svg)

    assert root.tag.endswith("svg")
    assert {"static", "dynamic", "continuous"} <= set(root.itertext())
    assert all(f'id="{name}"' in svg for name in ("p-dead", "p-padding"))
