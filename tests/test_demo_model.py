"""Tests of chairlift.demo_model."""

from pathlib import Path

import pytest

from chairlift import demo_model


def test_the_variable_names_the_file_itself(tmp_path: Path) -> None:
    """CHAIRLIFT_DEMO_MODEL wins over every default place, and any GGUF may stand in for the demo model."""
    stand_in = tmp_path / "other.gguf"
    stand_in.write_bytes(b"GGUF")

    assert demo_model.locate({demo_model.VARIABLE: str(stand_in)}) == stand_in


def test_a_checkout_keeps_the_model_beside_its_source() -> None:
    """Without the variable a checkout looks into its own .models folder, whatever the working directory."""
    checkout = Path(__file__).resolve().parents[1]

    assert demo_model.expected_path({}) == checkout / ".models" / demo_model.FILE_NAME


def test_an_installed_package_looks_into_the_user_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where no checkout surrounds the package, the file lies under XDG_CACHE_HOME."""
    monkeypatch.setattr(demo_model, "__file__", str(tmp_path / "lib/site-packages/chairlift/demo_model.py"))

    path = demo_model.expected_path({"XDG_CACHE_HOME": str(tmp_path / "cache")})

    assert path == tmp_path / "cache" / "chairlift" / demo_model.FILE_NAME


def test_a_missing_file_says_where_it_was_sought_and_how_to_get_it(tmp_path: Path) -> None:
    """The error names the path, the make target and the variable."""
    missing = tmp_path / "nowhere.gguf"

    with pytest.raises(FileNotFoundError, match=r"nowhere\.gguf: fetch it with `make model`, or set CHAIRLIFT_DEMO"):
        demo_model.locate({demo_model.VARIABLE: str(missing)})


def test_a_truncated_file_is_not_taken_for_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file of another length at the default place is refused with both lengths."""
    monkeypatch.setattr(demo_model, "__file__", str(tmp_path / "lib/site-packages/chairlift/demo_model.py"))
    path = demo_model.expected_path({"XDG_CACHE_HOME": str(tmp_path)})
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")

    with pytest.raises(FileNotFoundError, match="has 4 bytes instead of 98,362,432"):
        demo_model.locate({"XDG_CACHE_HOME": str(tmp_path)})
