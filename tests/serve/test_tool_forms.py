"""How models write calls: found by asking each known chat template, and written back as the template itself would."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pytest

from localrun.chat.messages import Message, ToolCall
from localrun.chat.template import ChatTemplate
from localrun.params import GenerationParams
from localrun.responder import Done, ModelIdentity, Request, Result, TextPiece, Timings, Usage
from localrun.serve.calling import CallArguments, CallBegun
from localrun.serve.tool_fields import Tools
from localrun.serve.tool_form import ToolForm
from localrun.serve.tool_probe import NoToolFormError, tool_form
from localrun.serve.turn import Told, Turn
from tests.sdist import sdist_root, template_file

# What begins a call, and the templates that begin one so. A call without a beginning of its own is possible where it is
# demanded.
Begun = dict[str | None, list[str]]
JSON, KEYED = "one JSON object", "one by one"
OBJECTS: Begun = {
    "<|tools_prefix|>": ["Apertus-8B-Instruct"],
    "<tool_calls>": [
        "Apriel-1.6-15b-Thinker-fixed",
        "MiniMax-M1",
        "unsloth-Apriel-1.5",
    ],
    "<tool_call>": [
        "Bielik-11B-v3.0-Instruct",
        "MiMo-VL",
        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        "Qwen-QwQ-32B",
        "Qwen-Qwen2.5-7B-Instruct",
        "Qwen-Qwen3-0.6B",
        "Reka-Edge",
        "ibm-granite-granite-4.0",
        "ibm-granite-granite-4.1",
    ],
    "<|START_ACTION|>": [
        "Cohere2MoE",
        "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    ],
    "Action:\n```json": ["CohereForAI-c4ai-command-r-plus-tool_use"],
    "[TOOL_CALLS]": [
        "Mistral-Small-3.2-24B-Instruct-2506",
        "mistralai-Ministral-3-14B-Reasoning-2512",
        "mistralai-Mistral-Nemo-Instruct-2407",
        "unsloth-mistral-Devstral-Small-2507",
    ],
    "<TOOLCALL>": ["NVIDIA-Nemotron-Nano-v2"],
    "<|tool_call|>": ["ibm-granite-granite-3.3-2B-Instruct"],
    "<｜tool▁calls▁begin｜>": ["llama-cpp-deepseek-r1"],
    "<function=": ["meetkai-functionary-medium-v3.1"],
    None: ["meetkai-functionary-medium-v3.2"],
    "<|tool_calls_section_begin|>": ["moonshotai-Kimi-K2"],
    "<|tool_calls|>": ["upstage-Solar-Open-100B"],
}
# One answer holds one call.
SINGLE_OBJECTS: Begun = {
    "<|message_sep|>\n\nfunction call<|role_sep|>": ["GigaChat3-10B-A1.8B"],
    "<|function_call|>": ["GigaChat3.1-10B-A1.8B"],
    None: [
        "meta-llama-Llama-3.1-8B-Instruct",
        "meta-llama-Llama-3.2-3B-Instruct",
        "meta-llama-Llama-3.3-70B-Instruct",
    ],
    "to=functions.": ["openai-gpt-oss-120b"],
}
ONE_BY_ONE: Begun = {
    "<seed:tool_call>": ["ByteDance-Seed-OSS"],
    "<tool_call>": [
        "GLM-4.6",
        "GLM-4.7-Flash",
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "Qwen3-Coder",
        "Qwen3.5-4B",
        "Spark2.5",
        "StepFun3.5-Flash",
        "inclusionai-ling-3.0-flash",
        "poolside-Laguna-S-2.1",
        "poolside-Laguna-XS-2.1",
        "poolside-Laguna-XS.2",
    ],
    "<|tool_call_start|>": [
        "LFM2-8B-A1B",
        "LFM2.5-8B-A1B",
        "LFM2.5-Instruct",
    ],
    "<minimax:tool_call>": ["MiniMax-M2"],
    "]<]minimax[>": ["MiniMax-M3"],
    "<｜DSML｜function_calls>": ["deepseek-ai-DeepSeek-V3.2"],
    "<｜DSML｜tool_calls>": [
        "deepseek-ai-DeepSeek-V4",
        "deepseek-ai-DeepSeek-V4-Flash-0731",
    ],
    "<|tool_call>": [
        "google-gemma-4-31B-it",
        "google-gemma-4-31B-it-interleaved",
    ],
    None: ["muse-glimmer"],
    '<function name="': ["openbmb-MiniCPM5-1B"],
    "<tool_calls:opensource>": ["tencent-Hy3"],
}
# Why a template has no form.
NONE: dict[str, list[str]] = {
    "it shows no tools": [
        "HuggingFaceTB-SmolLM3-3B",
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        "deepseek-ai-DeepSeek-V3.1",
        "google-gemma-2-2b-it",
        "llama-cpp-rwkv-world",
        "microsoft-Phi-3.5-mini-instruct",
    ],
    "access to attribute 'append' of a list is not allowed": [
        "Kimi-K2-Instruct",
        "Kimi-K2-Thinking",
    ],
    "it writes each type of argument in a way of its own": ["Kimi-K3"],
    "'functions' is undefined": ["fireworks-ai-llama-3-firefunction-v2"],
}


def _each(begun: Begun, how: str, *, several: bool = True) -> dict[str, tuple[str | None, str, bool]]:
    return {name: (tag, how, several) for tag, names in begun.items() for name in names}


# (what begins a call, how the arguments are written, whether one answer may hold several calls), or why there is none.
FORMS: dict[str, tuple[str | None, str, bool] | str] = {
    **_each(OBJECTS, JSON),
    **_each(SINGLE_OBJECTS, JSON, several=False),
    **_each(ONE_BY_ONE, KEYED),
    **{name: reason for reason, names in NONE.items() for name in names},
}
# Their words ask for a form, but they write no call of an earlier answer.
SILENT = ("LFM2-8B-A1B", "LFM2.5-Instruct", "ibm-granite-granite-3.3-2B-Instruct")
# Written another way than the template does: texts in the quotes of JSON, not of Python.
UNLIKE = (*SILENT, "LFM2.5-8B-A1B")


def tool(name: str, required: Sequence[str] = (), **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}}


CITY = {"type": "string", "description": "d"}
DAYS = {"type": "integer", "description": "d"}
UNIT = {"type": "string", "enum": ["metric", "imperial"], "description": "d"}
TOOLS = (
    tool("weather", ["city", "days"], city=CITY, days=DAYS, unit=UNIT),
    tool("weather_now", ["city"], city=CITY),  # its name begins with another's
)
CALLS = (
    ("weather", {"city": 'Zürich "{}" <end>', "days": 12345, "unit": "metric"}),
    ("weather_now", {"city": "Bern"}),
)
IDS = ("call_0123456789callid001", "call_0123456789callid002")


def template(name: str) -> ChatTemplate:
    source = template_file(name).read_text(encoding="utf-8")
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>", clock=lambda: datetime(2026, 1, 1))


def forms() -> Iterator[str]:
    return (name for name, expected in FORMS.items() if not isinstance(expected, str))


def test_the_form_of_every_known_template_is_found_or_the_reason_said() -> None:
    found: dict[str, tuple[str | None, str, bool] | str] = {}
    for path in sorted((sdist_root() / "models" / "templates").glob("*.jinja")):
        try:
            form = tool_form(template(path.stem))
        except NoToolFormError as error:
            expected = FORMS.get(path.stem)
            found[path.stem] = expected if isinstance(expected, str) and expected in str(error) else str(error)
        else:
            found[path.stem] = (form.tag, KEYED if form.keyed else JSON, form.several)
    assert found == FORMS


class Copyist:
    """A model that writes word for word what the template writes for the same calls."""

    def __init__(self, text: str, content: str = "") -> None:
        self.text, self.content = text, content

    def answer(self, request: Request) -> tuple[str, str | None]:
        """The text of a step, and the tag that ended it."""
        said = request.prefill.lstrip()
        assert said in self.text, f"said {said!r}\nnot in {self.text!r}"
        rest = self.text[self.text.index(said) + len(said) :] if said else self.text
        constraint = request.params.constraint
        if constraint is None and not said and request.tags:
            return self.content, request.tags[0]
        if constraint is None:
            return self._until(rest, request.tags)
        if constraint.kind == "choice":
            [chosen] = [text for text in constraint.source if rest.startswith(text)]
            return chosen, None
        _, end = json.JSONDecoder().raw_decode(rest)
        follower = next((text for text in constraint.followers if rest.startswith(text, end)), "")
        assert bool(follower) == bool(constraint.followers)
        return rest[:end] + follower, None

    def _until(self, rest: str, tags: tuple[str, ...]) -> tuple[str, str | None]:
        places = [(rest.index(tag), -len(tag), tag) for tag in tags if tag in rest]
        if not places:
            return "", None
        at, _, tag = min(places)
        return rest[:at], tag


def result(text: str, stop: str | None = None) -> Result:
    return Result(text, "", "stop_string" if stop else "stop", stop, 0, ModelIdentity("m"), Usage(), Timings())


def told_by(turn: Turn, model: Copyist) -> list[Told]:
    told: list[Told] = []
    while not turn.over:
        request, turn.request = turn.request, None
        assert request is not None
        text, stop = model.answer(request)
        for character in text:
            told += turn.take(TextPiece(character))
        told += turn.take(Done(result(text, stop)))
    assert turn.error is None
    return told


def calls_in(told: list[Told]) -> list[tuple[str, Any]]:
    calls = []
    for begun in (item for item in told if isinstance(item, CallBegun)):
        pieces = [item.text for item in told if isinstance(item, CallArguments) and item.number == begun.number]
        calls.append((begun.name, json.loads("".join(pieces))))
    return calls


def written(name: str, form: ToolForm, calls: Sequence[tuple[str, Any]], content: str = "") -> str:
    """What the template writes for an answer with these calls."""
    given = tuple(ToolCall(id_[-9:], called, json.dumps(a)) for id_, (called, a) in zip(IDS, calls, strict=False))
    messages = [Message("user", "Zq?"), Message("assistant", content, tool_calls=given)]
    text = template(name).render(messages, add_generation_prompt=False, tools=TOOLS).text
    begin = content or form.opening(0, IDS[0][-9:], first=True).strip() + calls[0][0]
    return text[text.index(begin, text.rindex("Zq?")) :]


@pytest.mark.parametrize("name", [name for name in forms() if name not in UNLIKE])
@pytest.mark.parametrize("choice", ["auto", "required", "=weather"])
def test_calls_are_asked_for_as_the_template_writes_them(
    name: str, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = tool_form(template(name))
    if form.tag is None and choice == "auto":
        return
    ids = itertools.cycle(IDS)
    monkeypatch.setattr("localrun.serve.turn.new_id", lambda: next(ids))
    expected = list(CALLS[: 2 if form.several and choice == "auto" else 1])
    model = Copyist(written(name, form, expected))
    request = Request(GenerationParams(), messages=(Message("user", "Zq?"),), tools=TOOLS)
    turn = Turn(request, Tools(TOOLS, choice, parallel=True), form)
    assert calls_in(told_by(turn, model)) == expected


@pytest.mark.parametrize(
    "name",
    [
        "CohereForAI-c4ai-command-r-plus-tool_use",
        "GLM-4.6",
        "GLM-4.7-Flash",
        "MiniMax-M2",
        "Qwen-Qwen3-0.6B",
        "Qwen3-Coder",
        "deepseek-ai-DeepSeek-V3.2",
        "mistralai-Ministral-3-14B-Reasoning-2512",
        "moonshotai-Kimi-K2",
        "openai-gpt-oss-120b",
    ],
)
def test_a_call_after_text_stands_as_the_template_writes_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, content = tool_form(template(name)), "Zq says."
    ids = itertools.cycle(IDS)
    monkeypatch.setattr("localrun.serve.turn.new_id", lambda: next(ids))
    text = written(name, form, CALLS[:1], content)
    between = text[len(content) : text.index(form.opening(0, IDS[0][-9:], first=True).strip())]
    if not form.joint:  # then it is white space, which the model writes
        assert not between.strip()
        content += between
    turn = Turn(Request(GenerationParams(), tools=TOOLS), Tools(TOOLS, "auto", parallel=False), form)
    told = told_by(turn, Copyist(text, content))
    assert calls_in(told) == list(CALLS[:1])
    assert "".join(item.text for item in told if isinstance(item, TextPiece)) == content


@pytest.mark.parametrize("name", SILENT)
def test_earlier_calls_are_written_for_a_template_that_does_not(name: str) -> None:
    form = tool_form(template(name))
    given = tuple(ToolCall(id_, called, json.dumps(a)) for id_, (called, a) in zip(IDS, CALLS, strict=True))
    messages = form.history((Message("user", "Zq?"), Message("assistant", "Well. ", tool_calls=given)))
    text = template(name).render(messages, tools=TOOLS).text
    if form.keyed:
        expected = '<|tool_call_start|>[weather(city="Zürich \\"{}\\" <end>", days=12345, unit="metric"), weather_now('
    else:
        expected = '<|tool_call|>[{"name": "weather", "arguments": {"city": "Z\\u00fcrich'
    assert f"Well. {expected}" in text


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("<call>{{ c.function.name }}:{{ loop.index * 9 }}{{ c.function.arguments | tojson }}</call>", "differently"),
        ("<call>{{ c.function.name }}({{ c.function.arguments.values() | join(' ') }})</call>", "arguments in a way"),
        ("<call>{{ c.function.name | upper }} {{ c.function.arguments | tojson }}</call>", "writes no calls"),
    ],
)
def test_a_form_is_not_guessed(call: str, reason: str) -> None:
    source = (
        "{{ tools | tojson }}{% for m in messages %}<{{ m.role }}>{{ m.content }}"
        "{% for c in m.tool_calls or [] %}" + call + "{% endfor %}<end>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    with pytest.raises(NoToolFormError, match=reason):
        tool_form(ChatTemplate(source))
