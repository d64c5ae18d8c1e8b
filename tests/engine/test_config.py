import pytest

from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ConfigError
from chairlift.engine.config import EngineConfig
from chairlift.runners.openvino.settings import RunnerSettings


def test_settings_find_their_part_by_name() -> None:
    """Scheduler, device and model settings are given side by side."""
    config = EngineConfig.of("m", {"policy": "static", "threads": 1, "revision": "main", "batch_size": 4})

    assert config == EngineConfig(
        "m",
        revision="main",
        runner=RunnerSettings(threads=1),
        scheduler=SchedulerConfig(policy="static", batch_size=4),
        fit_max_model_len=True,
    )


def test_a_second_name_is_the_same_setting() -> None:
    """max_seq_len is max_model_len, and giving both is refused."""
    assert EngineConfig.of("m", {"max_seq_len": 300}).scheduler.max_model_len == 300
    with pytest.raises(ConfigError, match="given twice"):
        EngineConfig.of("m", {"max_seq_len": 300, "max_model_len": 200})


@pytest.mark.parametrize(("name", "meant"), [("max_num_seq", "max_num_seqs"), ("thread", "threads")])
def test_an_unknown_setting_is_refused_with_the_closest(name: str, meant: str) -> None:
    """A slip of the pen is not swallowed."""
    with pytest.raises(ConfigError, match=rf"'{name}'; did you mean {meant}\?"):
        EngineConfig.of("m", {name: 1})


@pytest.mark.parametrize("name", ["scheduler", "runner", "fit_max_model_len", "model", "zzz"])
def test_parts_are_not_settings(name: str) -> None:
    """What has settings of its own, or none, cannot be given by name."""
    with pytest.raises(ConfigError, match=f"there is no setting '{name}'"):
        EngineConfig.of("m", {name: 1})


def test_a_value_that_cannot_be_is_refused_by_its_part() -> None:
    """The parts validate themselves."""
    with pytest.raises(ConfigError, match="--batch-size"):
        EngineConfig.of("m", {"batch_size": 0})


def test_the_default_length_is_fitted_to_the_model() -> None:
    """Without a wish the default is shortened to the model's positions, never lengthened; a wish is kept as it is."""
    default = EngineConfig.of("m", {})
    wished = EngineConfig.of("m", {"max_model_len": 1500})

    assert default.fitted(512).max_model_len == 512
    assert default.fitted(100_000) is default.scheduler
    assert wished.fitted(512).max_model_len == 1500
