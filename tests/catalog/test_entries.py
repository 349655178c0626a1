"""The catalogue that ships is sound, and the user's own adds to it, wins, and is checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from localrun.catalog import load_catalogue
from localrun.catalog.references import HubReference, IndexReference
from localrun.errors import UsageError


@pytest.fixture
def own(home: Path) -> Path:
    path = home / "config" / "models.toml"
    path.parent.mkdir(parents=True)
    return path


def test_the_shipped_catalogue_has_enough_and_its_default() -> None:
    catalogue = load_catalogue()
    assert len(catalogue.entries) >= 20
    default = catalogue.find(catalogue.default)
    assert default is not None
    assert [type(source.reference) for source in default.sources] == [HubReference, IndexReference]
    assert default.sources[1].sha256 is not None


def test_every_draft_partner_is_in_the_catalogue_and_smaller() -> None:
    catalogue = load_catalogue()
    for entry in catalogue.entries.values():
        if entry.draft is not None:
            draft = catalogue.find(entry.draft)
            assert draft is not None
            assert (draft.gigabytes or 0) < (entry.gigabytes or 0)


def test_no_name_or_alias_means_two_models() -> None:
    catalogue = load_catalogue()
    names = [name.casefold() for entry in catalogue.entries.values() for name in (entry.name, *entry.aliases)]
    assert len(names) == len(set(names))


def test_every_hub_source_names_a_file_or_a_quantization() -> None:
    for entry in load_catalogue().entries.values():
        for source in entry.sources:
            if isinstance(source.reference, HubReference):
                assert source.reference.file or source.reference.quant, entry.name


def test_names_are_found_by_alias_and_in_any_case() -> None:
    catalogue = load_catalogue()
    assert catalogue.find("smollm2") is catalogue.find("SmolLM2:135M") is catalogue.entries["smollm2:135m"]
    assert catalogue.find("nothing") is None


def test_near_names_are_suggested() -> None:
    catalogue = load_catalogue()
    assert catalogue.near("smolm2:135m")[0] == "smollm2:135m"
    assert catalogue.near("qwen3:9b")
    assert catalogue.near("llama3.2:70b")
    assert catalogue.near("mynew", ["mynewer:1b"]) == ["mynewer:1b"]
    assert catalogue.near("zzzzzz") == []


def test_the_users_own_file_adds_and_wins(own: Path) -> None:
    own.write_text(
        'default = "mine"\n'
        '[models.mine]\nsources = ["https://x.org/m.gguf"]\nabout = "Mine"\n'
        '[models."qwen3:8b"]\nsources = ["hf:me/qwen:Q8_0"]\n'
    )
    catalogue = load_catalogue()
    assert catalogue.default == "mine"
    assert catalogue.entries["mine"].about == "Mine"
    assert catalogue.entries["qwen3:8b"].sources[0].reference == HubReference("me/qwen", quant="Q8_0")
    assert "smollm2:135m" in catalogue.entries


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[models.x]\nsources = x", r"no valid TOML: .*line 2"),
        ("a = 1", "unknown key 'a'"),
        ("models = 1", "something else than sections"),
        ("[models]\nx = 1", "something else than sections"),
        ("[models.x]", r'models\."x"\] has no sources'),
        ("[models.x]\nsources = []", "has no sources"),
        ('[models.x]\nsources = "hf:o/r"', "sources is 'hf:o/r'"),
        ("[models.x]\nsources = [1]", "source 1 is neither"),
        ("[models.x]\nsources = [{size = 1}]", "neither a text nor a table with `at`"),
        ('[models.x]\nsources = ["smollm2"]', "'smollm2' is no source"),
        ('[models.x]\nsources = ["hf:o"]', "'hf:o' is no hub model"),
        ('[models.x]\nsources = [{at = "hf:o/r", sha256 = "12"}]', "sha256 is '12'"),
        ('[models.x]\nsources = [{at = "hf:o/r", sise = 1}]', "unknown key 'sise'"),
        ('[models.x]\nsources = ["hf:o/r"]\ncontext = "8k"', "context is '8k'"),
        ('[models.x]\nsources = ["hf:o/r"]\ncontext = true', "context is True"),
        ('[models.x]\nsources = ["hf:o/r"]\naliases = [1]', "it is a list of names"),
        ('default = 1\n[models.x]\nsources = ["hf:o/r"]', "`default` is 1"),
    ],
)
def test_a_mistake_in_it_is_a_usage_error_that_names_the_file(own: Path, text: str, words: str) -> None:
    own.write_text(text)
    with pytest.raises(UsageError, match=words) as caught:
        load_catalogue()
    assert str(own) in caught.value.message


def test_a_mistyped_key_has_a_hint(own: Path) -> None:
    own.write_text('[models.x]\nsources = ["hf:o/r"]\ncontxt = 1')
    with pytest.raises(UsageError) as caught:
        load_catalogue()
    assert "context" in (caught.value.hint or "")


def test_text_that_is_not_utf8_and_a_folder_are_refused(own: Path) -> None:
    own.write_bytes(b"# caf\xe9")
    with pytest.raises(UsageError, match="not UTF-8 text"):
        load_catalogue()
