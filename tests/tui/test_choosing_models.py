"""Loading, choosing and fetching a model."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from textual.widgets import OptionList

from localrun.errors import FetchError, ModelLoadError, ModelNotFoundError
from localrun.responder import ModelIdentity, ModelInfo, Request, Responder
from localrun.tui.models import LocalModels
from localrun.tui.ports import ModelChoice
from localrun.tui.screens.models import ModelScreen
from tests.tui.scripted import ScriptedResponder
from tests.tui.stage import ScriptedShelf, staged


async def test_an_engine_elsewhere_that_does_not_say_its_context_works(tmp_path: Path) -> None:
    class Elsewhere(ScriptedResponder):
        @property
        def info(self) -> ModelInfo:
            return ModelInfo(ModelIdentity("remote"), 0, can_chat=True, can_think=False)

        def count_tokens(self, request: Request) -> int:
            raise AssertionError("counting costs a request")

    model = Elsewhere("A", context_limit=10**6)
    async with staged(tmp_path, model=model) as stage:
        await stage.say("q")
        await stage.say("q2")
        assert stage.texts == ["q", "A", "q2", "A"]


async def test_the_list_of_models_may_come_after_the_picker_has_gone(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        await stage.pilot.press("ctrl+o")
        await stage.until(lambda: isinstance(stage.app.screen, ModelScreen))
        picker = stage.app.screen
        assert isinstance(picker, ModelScreen)
        await stage.pilot.press("escape")
        await stage.until(lambda: not picker.is_attached)
        picker._show(())
        picker._show_problem(FetchError("too late"))
        picker._fetched("qwen3:8b", threading.Event())


async def test_typing_is_possible_while_the_model_loads_and_the_message_is_sent_when_it_is_there(
    tmp_path: Path,
) -> None:
    gate = threading.Event()

    def open_model(name: str) -> Responder:
        gate.wait()
        return ScriptedResponder("loaded")

    async with staged(tmp_path, open_model=open_model) as stage:
        await stage.until_shown("loading smollm2:135m")
        await stage.type("early")
        await stage.pilot.press("enter")
        await stage.until_shown("queued: early")
        gate.set()
        await stage.until(lambda: stage.texts == ["early", "loaded"])


async def test_a_model_that_cannot_be_loaded_is_a_message_and_another_can_be_chosen(tmp_path: Path) -> None:
    def open_model(name: str) -> Responder:
        if name == "smollm2:135m":
            raise ModelLoadError("the file is damaged", hint="fetch it again")
        return ScriptedResponder("hello", name=name)

    shelf = ScriptedShelf()
    async with staged(tmp_path, open_model=open_model, shelf=shelf) as stage:
        await stage.until_shown("the file is damaged")
        await stage.type("/model other")
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.conversation.responder is not None)
        await stage.until_shown("other")


async def test_the_first_run_offers_models_downloads_one_and_starts(tmp_path: Path) -> None:
    shelf = ScriptedShelf(empty=True)
    async with staged(tmp_path, "hello", shelf=shelf) as stage:
        await stage.until(lambda: isinstance(stage.app.screen, ModelScreen))
        await stage.until_shown("too big")
        assert "98 MB" in stage.shown
        await stage.pilot.press("enter")
        await stage.until_shown("24 MB of 98 MB")
        shelf.proceed.set()
        await stage.until(lambda: stage.conversation.responder is not None)
        assert shelf.fetched == ["smollm2:135m"]
        await stage.say("hi")
        assert stage.texts == ["hi", "hello"]


async def test_a_name_that_stands_for_nothing_is_told_and_not_offered(tmp_path: Path) -> None:
    shelf = ScriptedShelf()

    def refuse(name: str) -> None:
        raise ModelNotFoundError(f"no model '{name}' is known", hint="did you mean smollm2:135m?")

    async with staged(tmp_path, "A", shelf=shelf) as stage:
        shelf.has = lambda name: False  # type: ignore[method-assign]
        shelf.check = refuse  # type: ignore[method-assign]
        stage.app.want_model("smolm:135m")
        await stage.until_shown("no model 'smolm:135m' is known")
        await stage.until_shown("did you mean smollm2:135m?")
        await stage.until_shown("qwen3:8b")
        names = [option.id for option in stage.app.screen.query_one(OptionList).options]
        assert names == ["smollm2:135m", "qwen3:8b", "llama3.3:70b"]


@pytest.mark.parametrize("name", ["nosuch:1b", "/nowhere/model.gguf"])
def test_the_shelf_knows_what_cannot_be_had(name: str) -> None:
    with pytest.raises(ModelNotFoundError):
        LocalModels().check(name)
    LocalModels().check("qwen3:8b")
    LocalModels().check("hf:owner/repo")


async def test_a_download_can_be_cancelled_and_another_one_chosen(tmp_path: Path) -> None:
    shelf = ScriptedShelf(empty=True)
    async with staged(tmp_path, "hello", shelf=shelf) as stage:
        await stage.until_shown("too big")
        await stage.pilot.press("enter")
        await stage.until_shown("Esc cancels")
        await stage.pilot.press("escape")
        await stage.until(lambda: shelf.cancelled == ["smollm2:135m"])
        assert isinstance(stage.app.screen, ModelScreen)
        await stage.pilot.press("down", "enter")
        await stage.until_shown("Downloading qwen3:8b")
        shelf.proceed.set()
        await stage.until(lambda: stage.conversation.responder is not None)
        assert shelf.fetched == ["qwen3:8b"]


async def test_a_failed_download_says_why_and_the_picker_stays(tmp_path: Path) -> None:
    shelf = ScriptedShelf(empty=True)
    shelf.failure = FetchError("the server sent a web page", hint="try again later")
    shelf.proceed.set()
    async with staged(tmp_path, "hello", shelf=shelf) as stage:
        await stage.until_shown("too big")
        await stage.pilot.press("enter")
        await stage.until_shown("the server sent a web page")
        assert isinstance(stage.app.screen, ModelScreen)


async def test_why_a_model_cannot_be_fetched_is_seen_on_a_small_screen(tmp_path: Path) -> None:
    shelf = ScriptedShelf()
    shelf.items += [ModelChoice(f"other:{number}b", 10**9, False, "fits", "Q4_K_M") for number in range(30)]
    shelf.failure = FetchError("qwen3:8b could not be fetched: no route to the host", hint="try again when online")
    shelf.proceed.set()
    async with staged(tmp_path, "hello", shelf=shelf, size=(80, 24)) as stage:
        await stage.pilot.press("ctrl+o")
        await stage.until_shown("qwen3:8b")
        await stage.pilot.press("down", "enter")
        await stage.until_shown("could not be fetched")
        await stage.until_shown("try again when online")


async def test_a_message_without_any_model_is_kept_until_one_is_chosen(tmp_path: Path) -> None:
    shelf = ScriptedShelf(empty=True)
    async with staged(tmp_path, "hello", shelf=shelf) as stage:
        await stage.until(lambda: isinstance(stage.app.screen, ModelScreen))
        await stage.pilot.press("escape")
        await stage.type("kept")
        await stage.pilot.press("enter")
        await stage.until(lambda: isinstance(stage.app.screen, ModelScreen))
        assert [draft.text for draft in stage.conversation.queue] == ["kept"]
        shelf.proceed.set()
        await stage.until_shown("too big")
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.texts == ["kept", "hello"])


async def test_another_model_takes_over_in_the_middle(tmp_path: Path) -> None:
    def open_model(name: str) -> Responder:
        return ScriptedResponder(f"I am {name}.", name=name)

    async with staged(tmp_path, open_model=open_model) as stage:
        await stage.until(lambda: stage.conversation.responder is not None)
        first = stage.conversation.responder
        await stage.say("who?")
        await stage.type("/model big")
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.conversation.responder is not first)
        await stage.say("who?")
        assert stage.texts[1::2] == ["I am smollm2:135m.", "I am big."]
        assert first.closed  # type: ignore[union-attr]
