from typing import Any

import numpy as np
import openvino as ov
import pytest

from chairlift.core.errors import UnsupportedModel
from chairlift.runners.openvino import compiled
from chairlift.runners.openvino.compiled import CompiledModel, compile_options
from chairlift.runners.openvino.formats import open_checkpoint
from tests.runners.openvino.helpers import MODELS


@pytest.mark.parametrize(("kind", "element"), [("f16", np.float16), ("f32", np.float32)])
def test_the_cache_has_the_type_and_shape_that_was_asked_for(kind: Any, element: type[np.generic]) -> None:
    """Keys and values by head, in blocks of 32, in f16 or f32."""
    model = CompiledModel(open_checkpoint(MODELS / "llama-gqa.F16.gguf"), 1, kind)

    assert (model.layers, model.cache_shape, model.cache_element) == (2, (2, 32, 8), element)


@pytest.mark.parametrize("precision", ["u8", "f32"])
def test_a_cache_of_another_kind_is_refused_loudly(monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    """Should the plugin lay its cache out otherwise than asked, nothing may be written to it."""
    asked = compile_options(1, "f16")
    monkeypatch.setattr(compiled, "compile_options", lambda *_: {**asked, "KV_CACHE_PRECISION": precision})

    with pytest.raises(UnsupportedModel, match=r"wants key_cache.0 as .*, not float16 \(2, 32, 8\)"):
        CompiledModel(open_checkpoint(MODELS / "llama-gqa.F16.gguf"), 1, "f16")


def test_the_plugin_chooses_nothing_that_changes_results() -> None:
    """Precision, cache and activations are set on every machine, whatever its CPU could do faster."""
    core = ov.Core()
    core.set_property("CPU", compile_options(2, "f16"))

    assert core.get_property("CPU", "INFERENCE_PRECISION_HINT") == ov.Type.f32
    assert core.get_property("CPU", "KV_CACHE_PRECISION") == ov.Type.f16
    assert core.get_property("CPU", "DYNAMIC_QUANTIZATION_GROUP_SIZE") == 0
    assert core.get_property("CPU", "INFERENCE_NUM_THREADS") == 2
