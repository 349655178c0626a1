"""Messages become the model's own prompt, or one clear error."""

from __future__ import annotations

import subprocess
import sys

import pytest

from localrun.chat.messages import Message, ToolCall
from localrun.chat.rendered import Prompt
from localrun.chat.template import ChatTemplate
from localrun.errors import TemplateError
from tests.sdist import template_file

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HELLO = [Message("user", "Hello")]


def known(name: str) -> ChatTemplate:
    return ChatTemplate(template_file(name).read_text(encoding="utf-8"), bos_token="<bos>", eos_token="</s>", name=name)


def codes(prompt: Prompt) -> list[str]:
    return [notice.code for notice in prompt.notices]


def test_a_conversation_is_rendered_and_its_texts_are_traced() -> None:
    prompt = ChatTemplate(CHATML).render([Message("system", "Be brief."), Message("user", "Hi <there>")])
    assert prompt.text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <there><|im_end|>\n<|im_start|>assistant\n"
    )
    assert prompt.segments == [
        ("<|im_start|>system\n", True),
        ("Be brief.", False),
        ("<|im_end|>\n<|im_start|>user\n", True),
        ("Hi <there>", False),
        ("<|im_end|>\n<|im_start|>assistant\n", True),
    ]


def test_without_a_generation_prompt_the_answer_is_not_begun() -> None:
    assert ChatTemplate(CHATML).render(HELLO, add_generation_prompt=False).text.endswith("<|im_end|>\n")


def test_a_base_model_is_named_as_one_with_the_flag_that_helps() -> None:
    for source in (None, "", "  \n"):
        with pytest.raises(TemplateError, match="tiny is a base model: it has no chat template") as caught:
            ChatTemplate(source, name="tiny")
        assert "--raw" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a\nb\n{% for x in %}", r"is broken: Expected an expression.* \(line 3\)"),
        ("a\n{{ messages", r"is broken: .*\(line 2\)"),
        ("{{ 'a' | nope }}", r"is broken: No filter named 'nope'"),
        ("a\n\n{{ messages.x.y }}", r"failed: .*has no attribute 'x' \(line 3\)"),
        ("a\n{{ 1 / 0 }}", r"failed: division by zero \(line 2\)"),
        ("a\n{{ raise_exception('Only\nusers!') }}", r"refuses this conversation: Only users! \(line 2\)"),
        ("{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}\n\n{{ m() }}", r"failed: division by zero \(line 2\)"),
    ],
)
def test_an_error_names_the_line_of_the_template(source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message) as caught:
        ChatTemplate(source, name="tiny").render(HELLO)
    assert "\n" not in caught.value.message


def test_a_system_text_without_a_role_goes_before_the_users_words() -> None:
    prompt = known("google-gemma-2-2b-it").render([Message("system", "Be brief."), *HELLO])
    assert prompt.text == ("<bos><start_of_turn>user\nBe brief.\n\nHello<end_of_turn>\n<start_of_turn>model\n")
    assert codes(prompt) == ["system_merged"]


def test_two_turns_of_one_role_are_joined_where_the_template_wants_alternation() -> None:
    messages = [Message("user", "One"), Message("user", "Two"), Message("assistant", "Yes"), Message("user", "Three")]
    prompt = known("google-gemma-2-2b-it").render(messages)
    assert "<start_of_turn>user\nOne\n\nTwo<end_of_turn>" in prompt.text
    assert codes(prompt) == ["turns_merged"]


def test_system_text_and_neighbouring_turns_together() -> None:
    messages = [Message("system", "S"), Message("user", "One"), Message("user", "Two"), Message("assistant", "Yes")]
    prompt = known("google-gemma-2-2b-it").render(messages)
    assert "S\n\nOne\n\nTwo<end_of_turn>" in prompt.text
    assert codes(prompt) == ["system_merged", "turns_merged"]


def test_a_template_that_accepts_a_conversation_gets_it_as_it_is() -> None:
    prompt = ChatTemplate(CHATML).render([Message("user", "One"), Message("user", "Two")])
    assert prompt.text.count("<|im_start|>user") == 2
    assert codes(prompt) == []


def test_a_conversation_that_no_arrangement_helps_shows_the_templates_own_words() -> None:
    with pytest.raises(TemplateError, match="Conversation roles must alternate user/assistant/user/assistant"):
        known("google-gemma-2-2b-it").render([Message("assistant", "I begin"), Message("user", "Hello")])


def test_what_is_still_refused_is_told_when_the_rest_could_be_put_right() -> None:
    messages = [Message("system", "S"), Message("assistant", "I begin"), Message("user", "Hello")]
    with pytest.raises(TemplateError, match="Conversation roles must alternate"):
        known("google-gemma-2-2b-it").render(messages)


def test_a_system_text_that_the_template_ignores_is_not_lost() -> None:
    source = "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content }}]{% endif %}{% endfor %}"
    prompt = ChatTemplate(source).render([Message("system", "Be brief."), *HELLO])
    assert prompt.text == "[Be brief.\n\nHello]"
    assert codes(prompt) == ["system_merged"]


def test_a_message_that_is_left_out_is_reported() -> None:
    source = "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content }}]{% endif %}{% endfor %}"
    prompt = ChatTemplate(source).render([*HELLO, Message("tool", "22 degrees")])
    assert prompt.text == "[Hello]"
    assert codes(prompt) == ["message_dropped"]


def test_contents_with_types_are_used_where_a_template_knows_no_other() -> None:
    source = "{% for m in messages %}{% for part in m.content %}{{ part['text'] }}{% endfor %}{% endfor %}"
    assert ChatTemplate(source).render(HELLO).text == "Hello"


def test_contents_with_types_are_not_written_out_as_lists() -> None:
    source = "{% for m in messages %}{% if m.content is string %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    prompt = ChatTemplate(source).render(HELLO)
    assert prompt.text == ""
    assert codes(prompt) == ["message_dropped"]


def test_the_beginning_of_an_answer_is_continued() -> None:
    prompt = ChatTemplate(CHATML).render(HELLO, prefill=Message("assistant", "Sure: "))
    assert prompt.text.endswith("<|im_start|>assistant\nSure: ")
    assert prompt.segments[-1] == ("Sure: ", False)


@pytest.mark.parametrize("name", ["Qwen-Qwen3-0.6B", "openai-gpt-oss-120b", "deepseek-ai-DeepSeek-V3.1"])
def test_think_is_told_to_the_template_or_an_empty_block_is_written(name: str) -> None:
    template = known(name)
    thinking, silent = template.render(HELLO, think=True), template.render(HELLO, think=False)
    assert thinking.text != silent.text
    assert not silent.in_reasoning


def test_a_prompt_says_that_its_output_begins_inside_the_reasoning() -> None:
    assert known("llama-cpp-deepseek-r1").render(HELLO).in_reasoning
    assert known("Qwen-QwQ-32B").render(HELLO, think=True).in_reasoning
    assert not known("Qwen-Qwen3-0.6B").render(HELLO, think=True).in_reasoning


def test_a_block_that_the_template_opened_is_closed_for_no_think() -> None:
    prompt = known("llama-cpp-deepseek-r1").render(HELLO, think=False)
    assert prompt.text.endswith("<think>\n\n</think>\n\n")
    assert not prompt.in_reasoning


def test_an_empty_block_is_written_where_the_template_has_no_switch() -> None:
    prompt = known("openai-gpt-oss-120b").render(HELLO, think=False)
    assert prompt.text.endswith("<|start|>assistant<|channel|>final<|message|>")


def test_a_given_answer_ends_the_reasoning_that_the_template_opened() -> None:
    prompt = known("llama-cpp-deepseek-r1").render(HELLO, prefill=Message("assistant", "Sure"))
    assert prompt.text.endswith("<think>\n\n</think>\n\nSure")
    assert not prompt.in_reasoning


def test_reasoning_that_was_stopped_is_continued_inside_its_block() -> None:
    prompt = known("Qwen-Qwen3-0.6B").render(HELLO, prefill=Message("assistant", "", "Let me"))
    assert prompt.text.endswith("<|im_start|>assistant\n<think>\nLet me")
    assert prompt.in_reasoning
    answer = known("Qwen-Qwen3-0.6B").render(HELLO, prefill=Message("assistant", "Yes", "Let me"))
    assert answer.text.endswith("<think>\nLet me\n</think>\n\nYes")


def test_a_block_can_be_opened_for_a_model_that_would_open_it_by_itself() -> None:
    prompt = known("Qwen-Qwen3-0.6B").render(HELLO, think=True, open_reasoning=True)
    assert prompt.text.endswith("<|im_start|>assistant\n<think>\n")
    assert prompt.in_reasoning


@pytest.mark.parametrize(
    ("name", "thinks"),
    [
        ("Qwen-Qwen3-0.6B", True),
        ("llama-cpp-deepseek-r1", True),
        ("openai-gpt-oss-120b", True),
        ("deepseek-ai-DeepSeek-V3.1", False),
        ("ibm-granite-granite-3.3-2B-Instruct", False),
        ("LFM2.5-Instruct", False),
        ("Qwen-Qwen2.5-7B-Instruct", False),
    ],
)
def test_a_block_is_opened_only_for_a_model_that_thinks_by_default(name: str, thinks: bool) -> None:
    template = known(name)
    assert template.thinks_by_default == thinks
    assert template.render(HELLO, open_reasoning=True).in_reasoning == thinks
    assert not template.render(HELLO, open_reasoning=True, think=False).in_reasoning


def test_asking_a_model_without_reasoning_to_think_is_reported() -> None:
    assert codes(known("Qwen-Qwen2.5-7B-Instruct").render(HELLO, think=True)) == ["think_ignored"]
    assert codes(known("Qwen-Qwen2.5-7B-Instruct").render(HELLO, think=False)) == []


def test_earlier_reasoning_is_kept_or_dropped_as_the_template_says() -> None:
    messages = [*HELLO, Message("assistant", "Yes", "because"), Message("user", "Why?")]
    assert "because" not in known("Qwen-Qwen3-0.6B").render(messages).text
    assert "because" in known("ByteDance-Seed-OSS").render(messages).text


def test_a_text_that_the_template_compares_leaves_the_rendering_right_and_untraced() -> None:
    source = (
        "{% for m in messages %}{{ 'TOOL' if m.content.startswith('<r>') else 'USER' }}:{{ m.content }};{% endfor %}"
    )
    prompt = ChatTemplate(source).render([Message("user", "<r>22"), Message("user", "hi")])
    assert prompt.text == "TOOL:<r>22;USER:hi;"
    assert prompt.spans is None
    assert prompt.segments == [(prompt.text, False)]


def test_tools_are_told_to_the_template() -> None:
    tool = {"type": "function", "function": {"name": "weather", "description": "", "parameters": {}}}
    assert '"weather"' in known("Qwen-Qwen3-0.6B").render(HELLO, tools=[tool]).text


WEATHER = ToolCall("call_0123456789abcdef01234567", "weather", '{"city": "Rome", "days": 70417}')
CALLED = [*HELLO, Message("assistant", "", tool_calls=(WEATHER,)), Message("tool", "Sunny", tool_call_id=WEATHER.id)]


@pytest.mark.parametrize("name", ["Qwen-Qwen3-0.6B", "GLM-4.7-Flash", "meetkai-functionary-medium-v3.2"])
def test_calls_are_told_as_objects_or_as_text_whichever_the_template_takes(name: str) -> None:
    prompt = known(name).render(CALLED)
    for text in ("weather", "city", "Rome", "70417", "Sunny"):
        assert text in prompt.text
    assert prompt.notices == ()


def test_ids_of_calls_are_shortened_where_the_template_wants_it() -> None:
    text = known("mistralai-Mistral-Nemo-Instruct-2407").render(CALLED).text
    assert text.count("f01234567") == 2
    assert WEATHER.id not in text
    assert "call_0123456789abcdef01234567" in known("upstage-Solar-Open-100B").render(CALLED).text


def test_a_refusal_is_told_in_the_words_for_calls_as_they_were_given() -> None:
    source = "{% for m in messages if m.tool_calls %}{{ raise_exception(m.tool_calls[0].id) }}{% endfor %}"
    with pytest.raises(TemplateError, match=WEATHER.id):
        ChatTemplate(source).render(CALLED)


@pytest.mark.parametrize("name", ["meta-llama-Llama-3.1-8B-Instruct", "openai-gpt-oss-120b", "GigaChat3.1-10B-A1.8B"])
def test_several_calls_are_told_one_by_one_where_the_template_writes_one(name: str) -> None:
    other = ToolCall("call_2", "time", '{"zone": "CET"}')
    calls = Message("assistant", "", tool_calls=(WEATHER, other))
    answers = [Message("tool", "Noon", tool_call_id="call_2"), Message("tool", "Sunny", tool_call_id=WEATHER.id)]
    tools = [{"type": "function", "function": {"name": name, "description": "d"}} for name in ("weather", "time")]
    prompt = known(name).render([*HELLO, calls, *answers], tools=tools)
    places = [prompt.text.index(text) for text in ("Rome", "Sunny", "CET", "Noon")]
    assert places == sorted(places)
    assert prompt.notices == ()


def test_calls_that_are_left_out_are_reported() -> None:
    tools = [{"type": "function", "function": {"name": "weather", "description": "d"}}]
    assert codes(known("LFM2-8B-A1B").render(CALLED, tools=tools)) == ["calls_dropped"]


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("openai-gpt-oss-120b", "<|start|>assistant"),
        ("Qwen-Qwen3-0.6B", "<|im_start|>assistant\n"),
    ],
)
def test_what_the_template_begins_has_no_header_of_an_answer(name: str, header: str) -> None:
    begun = Message("assistant", " to=f")
    assert known(name).render(HELLO, prefill=begun, markup=[(0, 5)]).text.endswith(f"{header} to=f")


def test_reasoning_before_what_the_template_begins_is_closed() -> None:
    begun = Message("assistant", " to=f", "Hm.")
    text = known("openai-gpt-oss-120b").render(HELLO, prefill=begun, markup=[(0, 5)]).text
    assert text.endswith("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=f")


def test_tools_and_calls_that_are_nested_without_end_are_one_clear_error() -> None:
    parameters: dict[str, object] = {}
    for _ in range(2000):
        parameters = {"items": parameters}
    with pytest.raises(TemplateError, match="nested too deeply"):
        known("Qwen-Qwen3-0.6B").render(HELLO, tools=[{"type": "function", "function": parameters}])
    call = ToolCall("1", "f", "[" * 100_000)
    prompt = known("Qwen-Qwen3-0.6B").render([*HELLO, Message("assistant", "", tool_calls=(call,))])
    assert "[[[[" in prompt.text


def test_importing_the_module_does_not_import_jinja() -> None:
    program = "import sys, localrun.chat.template; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
