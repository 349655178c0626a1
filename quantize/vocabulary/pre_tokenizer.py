"""Which of llama.cpp's pre-tokenizers splits text as a `tokenizer.json` does.

llama.cpp's converter hashes the ids of a test string, so a fine-tune with one more token is "not recognized". Here the
name is derived from the steps themselves, which a fine-tune does not change. The patterns are those that
`llm_tokenizer_bpe` in llama.cpp's src/llama-vocab.cpp implements. Invariant: steps that are not known are refused;
no name is ever guessed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from quantize.checkpoint.config import Json
from quantize.errors import UnsupportedError

Steps = tuple[tuple[str, str], ...]

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _cased(ending: str) -> str:
    """A word as capitals then small letters, in the two orders that o200k and Tekken distinguish."""
    start = r"[^\r\n\p{L}\p{N}]?"
    return f"{start}{_UPPER}*{_LOWER}+{ending}|{start}{_UPPER}+{_LOWER}*{ending}"


CL100K = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_TAIL}"
QWEN2 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_SYMBOLS}|{_TAIL}"
QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_TAIL}"
)
O200K = rf"{_cased(_CONTRACTIONS + '?')}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}"
TEKKEN = rf"{_cased('')}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}"
SEED_CODER = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_TAIL}"
DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"""
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|" + _TAIL
)

_CUTS = (("Isolated", False), ("Removed", True))
"""The two ways to say that matches and what lies between them are pieces of their own."""

_BYTES: tuple[str, str] = ("bytes", "")
_GPT2: tuple[str, str] = ("gpt2", "")

_KNOWN: dict[Steps, str] = {
    (_GPT2,): "gpt-2",
    (("digits", "each"), _GPT2): "starcoder",
    (("split", r"\p{N}"), _GPT2): "starcoder",
    (("split", CL100K), _BYTES): "dbrx",
    (("split", QWEN2), _BYTES): "qwen2",
    (("split", QWEN35), _BYTES): "qwen35",
    (("split", O200K), _BYTES): "gpt-4o",
    (("split", TEKKEN), _BYTES): "tekken",
    (("split", SEED_CODER), _BYTES): "seed-coder",
    (("split", r"\p{N}{1,3}"), ("split", "[一-龥\u3040-ゟ゠-ヿ]+"), ("split", DEEPSEEK_V3), _BYTES): "deepseek-v3",
}

ENGINE_NAMES = frozenset(
    """
    a.x-4.0 afmoe bailingmoe bailingmoe2 bloom chameleon chatglm-bpe codeshell cohere2moe command-r dbrx
    deepseek-coder deepseek-llm deepseek-r1-qwen deepseek-v3 exaone exaone-moe exaone4 f2llmv2 falcon falcon-h1
    falcon3 gemma4 gigachat glm4 glm5 gpt-2 gpt-4o gpt3-finnish granite-docling granite-embed-multi-311m
    granite-embed-multi-97m grok-2 hunyuan hunyuan-dense hy_v4 jais jais-2 jina-de jina-es jina-v1-en jina-v2-code
    jina-v2-de jina-v2-es jina-v5-nano joyai-llm kanana2 kormo laguna lfm2 llada-moe llama-bpe llama-v3 llama3
    llama4 megrez mellum mellum2 midm-2.0 minerva-7b minicpm5 minimax-m2 modern-bert mpt olmo phi-2 pixtral
    poro-chat qwen2 qwen35 refact roberta-bpe sarvam-moe seed-coder smaug-bpe smollm solar-open spark2_5 stablelm2
    starcoder superbpe talkie tekken tiny_aya trillion ufakzeka viking whitespace youtu
    """.split()  # noqa: SIM905 (one name a line would fill three screens)
)
"""All that `llama_vocab::impl::load` accepts for byte-level BPE, in llama-cpp-python 0.3.36."""


def pre_tokenizer_name(tokenizer: Json, *, keeps_spaces: bool) -> str:
    """llama.cpp's name for the pre-tokenizer of a byte-level BPE `tokenizer.json`.

    `keeps_spaces`: decoding leaves the spaces before punctuation (`clean_up_tokenization_spaces` is off). Raises
    UnsupportedError for steps that no pre-tokenizer of llama.cpp performs.
    """
    steps = tuple(_steps(tokenizer.get("pre_tokenizer")))
    name = _KNOWN.get(steps)
    if name is None:
        raise UnsupportedError(
            f"the tokenizer splits text in a way the engine does not know: {_describe(steps)}",
            hint="if you know which of llama.cpp's pre-tokenizers is the same, name it: --pre-tokenizer NAME",
        )
    model = tokenizer.get("model")
    whole_words_first = isinstance(model, dict) and bool(model.get("ignore_merges"))
    if name == "dbrx" and whole_words_first:
        return "llama-bpe"
    if name == "starcoder" and keeps_spaces:
        return "smollm"
    return name


def checked_name(name: str) -> str:
    """A name given by hand. Raises UnsupportedError when the engine would refuse it."""
    if name not in ENGINE_NAMES:
        close = difflib.get_close_matches(name, sorted(ENGINE_NAMES), 3)
        raise UnsupportedError(
            f"the engine has no pre-tokenizer {name!r}",
            hint="close: " + ", ".join(close) + "."
            if close
            else "Common ones: gpt-2, llama-bpe, qwen2, gpt-4o, tekken.",
        )
    return name


def _steps(node: Any) -> Iterator[tuple[str, str]]:
    """The pre-tokenizer as a flat list of steps; a step that is not understood keeps its own description."""
    if not isinstance(node, dict):
        yield "none", ""
        return
    kind = node.get("type")
    if kind == "Sequence":
        inner = node.get("pretokenizers")
        for step in inner if isinstance(inner, list) else (None,):
            yield from _steps(step)
    elif kind == "ByteLevel" and not node.get("add_prefix_space"):
        yield _GPT2 if node.get("use_regex", True) else _BYTES
    elif kind == "Digits":
        yield "digits", "each" if node.get("individual_digits") else "runs"
    elif kind == "Split" and (node.get("behavior"), bool(node.get("invert"))) in _CUTS:
        yield "split", _pattern(node.get("pattern"))
    else:
        yield "other", str({key: value for key, value in node.items() if key != "trim_offsets"})


def _pattern(node: Any) -> str:
    """A regular expression in one spelling: line ends may stand in it as such or escaped."""
    text = str(node.get("Regex", node.get("String"))) if isinstance(node, dict) else str(node)
    return text.replace("\r", r"\r").replace("\n", r"\n")


def _describe(steps: Steps) -> str:
    names = {"bytes": "byte level", "gpt2": "byte level with GPT-2's pattern", "none": "no pre-tokenizer"}
    return ", then ".join(names.get(kind, f"{kind} {detail}"[:200]) for kind, detail in steps) or "no step"
