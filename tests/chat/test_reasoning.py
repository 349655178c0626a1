"""How a model writes its reasoning is found out from its template."""

from __future__ import annotations

import pytest

from localrun.chat.reasoning import ReasoningFormat, from_vocabulary, switch_variables
from localrun.chat.template import ChatTemplate
from tests.sdist import template_file

THINK = ("<think>", "</think>")
TAGS = {
    "Qwen-Qwen3-0.6B": THINK,
    "Qwen-QwQ-32B": THINK,
    "Qwen3.5-4B": THINK,
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": THINK,
    "deepseek-ai-DeepSeek-V3.1": THINK,
    "llama-cpp-deepseek-r1": THINK,
    "HuggingFaceTB-SmolLM3-3B": THINK,
    "GLM-4.6": THINK,
    "GLM-4.7-Flash": THINK,
    "MiniMax-M2": THINK,
    "LFM2.5-Instruct": THINK,
    "Kimi-K2-Thinking": THINK,
    "ibm-granite-granite-3.3-2B-Instruct": THINK,
    "NVIDIA-Nemotron-Nano-v2": THINK,
    "MiniMax-M3": ("<mm:think>", "</mm:think>"),
    "tencent-Hy3": ("<think:opensource>", "</think:opensource>"),
    "ByteDance-Seed-OSS": ("<seed:think>", "</seed:think>"),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("[THINK]", "[/THINK]"),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "Apertus-8B-Instruct": ("<|inner_prefix|>", "<|inner_suffix|>"),
    "google-gemma-4-31B-it": ("<|channel>thought", "<channel|>"),
    "Apriel-1.6-15b-Thinker-fixed": ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    "Kimi-K3": ("<|open|>think<|sep|>", "<|close|>think<|sep|><|open|>response<|sep|>"),
    "upstage-Solar-Open-100B": ("<|think|>", "<|end|><|begin|>assistant<|content|>"),
    "muse-glimmer": ("to=self<|message|>", "<|eom|><|start|>assistant to=user<|message|>"),
    "openai-gpt-oss-120b": (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
}
SILENT = [
    "Qwen-Qwen2.5-7B-Instruct",
    "google-gemma-2-2b-it",
    "meta-llama-Llama-3.1-8B-Instruct",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "ibm-granite-granite-4.0",
]
SWITCHED = [
    "Qwen-Qwen3-0.6B", "Qwen-QwQ-32B", "HuggingFaceTB-SmolLM3-3B", "deepseek-ai-DeepSeek-V3.1", "GLM-4.6",
    "ByteDance-Seed-OSS", "MiniMax-M3", "inclusionai-ling-3.0-flash", "tencent-Hy3", "Cohere2MoE", "Kimi-K3",
    "upstage-Solar-Open-100B", "ibm-granite-granite-3.3-2B-Instruct", "google-gemma-4-31B-it",
]  # fmt: skip


def known(name: str) -> ChatTemplate:
    return ChatTemplate(template_file(name).read_text(encoding="utf-8"), bos_token="<bos>", eos_token="</s>")


@pytest.mark.parametrize("name", TAGS)
def test_the_tags_of_a_reasoning_model_are_found(name: str) -> None:
    form = known(name).reasoning
    assert form is not None
    assert (form.open_tag, form.close_tag) == TAGS[name]


@pytest.mark.parametrize("name", SILENT)
def test_a_model_without_reasoning_has_no_tags(name: str) -> None:
    assert known(name).reasoning is None


@pytest.mark.parametrize("name", SWITCHED)
def test_a_template_with_a_switch_is_known_to_have_one(name: str) -> None:
    assert known(name).can_switch_thinking


def test_a_template_without_a_switch_is_known_to_have_none() -> None:
    assert not known("llama-cpp-deepseek-r1").can_switch_thinking
    assert not known("Qwen-Qwen2.5-7B-Instruct").can_switch_thinking


def test_the_closing_text_is_what_the_template_writes() -> None:
    form = known("Qwen-Qwen3-0.6B").reasoning
    assert form is not None
    assert form.opening == "<think>\n"
    assert form.closing_text == b"\n</think>\n\n"


def test_tags_of_a_silent_template_are_found_in_the_vocabulary() -> None:
    form = ReasoningFormat("<think>\n", "\n</think>\n\n", is_written=False)
    assert from_vocabulary({"<think>", "</think>", "a"}.__contains__) == form
    assert from_vocabulary({"<think>", "a"}.__contains__) is None


def test_special_tokens_that_make_up_the_tags_are_told_from_others() -> None:
    harmony = known("openai-gpt-oss-120b").reasoning
    ministral = known("mistralai-Ministral-3-14B-Reasoning-2512").reasoning
    assert harmony is not None
    assert ministral is not None
    assert all(map(harmony.is_marker, ["<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>"]))
    assert not harmony.is_marker("<|return|>")
    assert ministral.is_marker("[THINK]")
    assert not ministral.is_marker("[INST]")
    assert not ministral.is_marker("")


def test_only_variables_that_the_template_names_are_set() -> None:
    assert switch_variables("{{ enable_thinking }}", True) == {"enable_thinking": True}
    assert switch_variables("{{ enable_thinking }}", None) == {}
    assert switch_variables("{{ thinking_budget }}", False) == {"thinking_budget": 0}
    assert switch_variables("{{ reasoning_effort }} 'no_think' 'high'", True) == {"reasoning_effort": "high"}
    assert switch_variables("{{ reasoning_effort }} 'no_think' 'high'", False) == {"reasoning_effort": "no_think"}
    assert switch_variables("nothing", False) == {}
