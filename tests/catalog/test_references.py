"""Every way to name a model means one thing, or is refused with its form."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localrun.catalog.references import (
    HubReference,
    IndexReference,
    NameReference,
    PathReference,
    UrlReference,
    parse_reference,
    parse_remote,
)
from localrun.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf:o/r", HubReference("o/r")),
        ("HF:o/r", HubReference("o/r")),
        ("hf:o/r:Q4_K_M", HubReference("o/r", quant="Q4_K_M")),
        ("hf:o/r:UD-Q4_K_XL", HubReference("o/r", quant="UD-Q4_K_XL")),
        ("hf:o/r/f.gguf", HubReference("o/r", file="f.gguf")),
        ("hf:o/r/sub/f.gguf", HubReference("o/r", file="sub/f.gguf")),
        ("hf:o/r:f.gguf", HubReference("o/r", file="f.gguf")),
        ("hf.co/o/r:Q8_0", HubReference("o/r", quant="Q8_0")),
        ("huggingface.co/o/r", HubReference("o/r")),
        ("https://huggingface.co/o/r/resolve/main/f.gguf", HubReference("o/r", file="f.gguf")),
        ("https://huggingface.co/o/r/resolve/main/f.gguf?download=true", HubReference("o/r", file="f.gguf")),
        ("https://huggingface.co/o/r/blob/main/s/f.gguf", HubReference("o/r", file="s/f.gguf")),
        ("https://huggingface.co/o/r", HubReference("o/r")),
        ("https://huggingface.co/o/r/tree/main", HubReference("o/r")),
        ("pypi:a-b==1.0/p/m.gguf", IndexReference("a-b", "1.0", "p/m.gguf")),
        ("https://x.org/m.gguf", UrlReference("https://x.org/m.gguf")),
        ("https://x.org/m.gguf#sha256=" + "AB" * 32, UrlReference("https://x.org/m.gguf", "ab" * 32)),
        ("./m.gguf", PathReference(Path("m.gguf"))),
        ("m.GGUF", PathReference(Path("m.GGUF"))),
        ("/a b/mödel 日本.gguf", PathReference(Path("/a b/mödel 日本.gguf"))),
        ("./-x.gguf", PathReference(Path("-x.gguf"))),
        ("smollm2:135m", NameReference("smollm2:135m")),
        ("o/r", NameReference("o/r")),
    ],
)
def test_each_form_is_understood(text: str, expected: object) -> None:
    reference = parse_reference(text)
    assert reference == expected
    if not isinstance(reference, PathReference):
        assert parse_reference(reference.text) == reference


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "a\0b", "hf:", "hf:r", "hf:o/", "hf:/r", "hf:o/r:", "hf:o/r:Q4/x", "hf:o/r/readme.md", "hf:../r",
        "hf:o/../../x.gguf", "hf:o/r/../x.gguf", "hf:o/r//x.gguf", "hf:o/r/a\\b.gguf", "hf:o/r/x.gguf:Q4",
        "pypi:a", "pypi:a==1", "pypi:a/m.gguf", "pypi:a>=1/m.gguf", "pypi:-a==1/m.gguf", "pypi:a==1/../m.gguf",
        "pypi:a==1 --pre/m.gguf", "pypi:a==1/m.bin", "https://", "https:///m.gguf", "https://x:99999/m.gguf",
        "https://x.org/m.gguf#sha256=12", "https://x.org/m.gguf#x", "https://huggingface.co/o",
        "https://huggingface.co/o/r/resolve/v2/f.gguf",
    ],
)  # fmt: skip
def test_a_malformed_name_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_reference(text)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.text(max_size=60) | st.sampled_from(["hf:", "pypi:", "https://"]).flatmap(lambda p: st.text().map(p.__add__)))
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        reference = parse_reference(text)
    except UsageError:
        return
    if isinstance(reference, HubReference):
        assert ".." not in (reference.file or "").split("/")


def test_a_file_without_the_usual_ending_is_a_path_if_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_reference("weights") == NameReference("weights")
    Path("weights").touch()
    assert parse_reference("weights") == PathReference(Path("weights"))


def test_a_tilde_is_the_users_home(other_tools: Path) -> None:
    assert parse_reference("~/m.gguf") == PathReference(other_tools / "m.gguf")
    assert parse_reference("~nobody-here/m.gguf") == PathReference(Path("~nobody-here/m.gguf"))


def test_only_what_can_be_fetched_is_a_source() -> None:
    assert parse_remote("hf:o/r") == HubReference("o/r")
    for text in ("smollm2", "./m.gguf"):
        with pytest.raises(UsageError, match="no source"):
            parse_remote(text)


def test_secrets_in_a_url_are_not_shown() -> None:
    reference = parse_reference("https://me:secret@x.org:8443/d/m.gguf?token=hidden")
    assert isinstance(reference, UrlReference)
    assert reference.shown == "https://x.org:8443/d/m.gguf"
    assert reference.file_name == "m.gguf"
