"""Among the files of a repository the one that was meant is chosen, or the choice is shown."""

from __future__ import annotations

import pytest

from localrun.catalog.choice import choose, complete_models, quantization_in
from localrun.catalog.references import HubReference
from localrun.errors import ModelNotFoundError

FILES = [
    "README.md",
    "m-Q4_K_M.gguf",
    "m-Q8_0.gguf",
    "m-UD-Q4_K_XL.gguf",
    "mmproj-F16.gguf",
    "m.imatrix.gguf",
    "BF16/m-BF16-00001-of-00002.gguf",
    "BF16/m-BF16-00002-of-00002.gguf",
    "m-Q6_K-00001-of-00003.gguf",
]


@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        ("SmolLM2-135M-Instruct-Q8_0.gguf", "Q8_0"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("qwen2.5-0.5b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("m-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("m-IQ2_XXS-00001-of-00004.gguf", "IQ2_XXS"),
        ("BF16/m-BF16-00001-of-00002.gguf", "BF16"),
        ("Q4_K_M.gguf", "Q4_K_M"),
        ("m-f16.gguf", "F16"),
        ("model.gguf", None),
        ("Qwen3-8B.gguf", None),
    ],
)
def test_the_quantization_is_read_from_the_name(name: str, quantization: str | None) -> None:
    assert quantization_in(name) == quantization


def test_projectors_and_incomplete_sets_are_no_models() -> None:
    assert complete_models(FILES) == [
        ("BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf"),
        ("m-Q4_K_M.gguf",),
        ("m-Q8_0.gguf",),
        ("m-UD-Q4_K_XL.gguf",),
    ]


@pytest.mark.parametrize(
    ("reference", "first"),
    [
        (HubReference("o/r"), "m-Q4_K_M.gguf"),
        (HubReference("o/r", quant="q8_0"), "m-Q8_0.gguf"),
        (HubReference("o/r", quant="UD-Q4_K_XL"), "m-UD-Q4_K_XL.gguf"),
        (HubReference("o/r", quant="BF16"), "BF16/m-BF16-00001-of-00002.gguf"),
        (HubReference("o/r", file="BF16/m-BF16-00002-of-00002.gguf"), "BF16/m-BF16-00001-of-00002.gguf"),
    ],
)
def test_the_model_that_was_meant_is_chosen(reference: HubReference, first: str) -> None:
    assert choose(reference, FILES)[0] == first


def test_a_single_model_needs_no_name() -> None:
    assert choose(HubReference("o/r"), ["weights.gguf", "x.json"]) == ("weights.gguf",)


@pytest.mark.parametrize(
    ("reference", "files", "message", "hint"),
    [
        (HubReference("o/r", quant="Q4_K_L"), FILES, "no quantization Q4_K_L", "did you mean: Q4_K_M"),
        (HubReference("o/r", quant="IQ1_S"), FILES, "no quantization IQ1_S", "Q8_0"),
        (HubReference("o/r", file="m-q4_k_m.gguf"), FILES, "no file", "did you mean: m-Q4_K_M.gguf"),
        (HubReference("o/r"), ["a.gguf", "b.gguf"], "several models", "a.gguf, b.gguf"),
        (HubReference("o/r", quant="Q8_0"), ["a-Q8_0.gguf", "b-Q8_0.gguf"], "several models", "a-Q8_0.gguf"),
        (HubReference("o/r"), ["model.safetensors"], "holds no GGUF model", "-GGUF"),
    ],
)
def test_what_there_is_to_choose_from_is_told(
    reference: HubReference, files: list[str], message: str, hint: str
) -> None:
    with pytest.raises(ModelNotFoundError, match=message) as caught:
        choose(reference, files)
    assert hint in (caught.value.hint or "")
