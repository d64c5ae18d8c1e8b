from xml.etree import ElementTree as ET

from scripts import draw_slots as script


def test_the_picture_in_the_docs_is_up_to_date() -> None:
    """It is what the simulator and the slot picture make of the load today."""
    assert script.TARGET.read_text(encoding="utf-8") == script.picture()


def test_the_picture_stands_alone() -> None:
    """Well-formed, with all patterns that it uses, and the three policies in it."""
    svg = script.picture()
    root = ET.fromstring(svg)

    assert root.tag.endswith("svg")
    assert {"static", "dynamic", "continuous"} <= set(root.itertext())
    assert all(f'id="{name}"' in svg for name in ("p-dead", "p-padding"))
