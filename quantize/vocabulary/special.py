"""The special tokens of a model: their ids, and which of them the tokenizer adds by itself.

Sources, first one wins: the tokenizer's configuration (by text), config.json, generation_config.json (by id). What is
added is read from the post-processor of tokenizer.json, which is what encodes in the end. Same rules as `SpecialVocab`
in gguf-py, plus end tokens that only a list names. Invariant: every id lies inside the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from quantize.checkpoint.config import Json
from quantize.metadata import Metadata, boolean, u32
from quantize.vocabulary.files import TokenizerFiles

_KEYS = {
    "bos": "tokenizer.ggml.bos_token_id",
    "eos": "tokenizer.ggml.eos_token_id",
    "unk": "tokenizer.ggml.unknown_token_id",
    "sep": "tokenizer.ggml.seperator_token_id",  # the key's own spelling
    "pad": "tokenizer.ggml.padding_token_id",
    "mask": "tokenizer.ggml.mask_token_id",
    "eot": "tokenizer.ggml.eot_token_id",
    "eom": "tokenizer.ggml.eom_token_id",
}
"""`cls` has none: it stands in for a missing `bos`."""


_ENGINES_ENDS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
)  # fmt: skip
"""Texts that end generation whatever the keys say (`special_eog_ids` in llama.cpp's src/llama-vocab.cpp)."""


def special_tokens(files: TokenizerFiles, ids: Mapping[str, int], n_tokens: int, *, adds_bos: bool) -> Metadata:
    """Ids and flags as GGUF keys.

    `ids` maps every token's text to its id; `adds_bos` is what a tokenizer of this kind does when no file says.
    """
    names = {role: files.special_token(role) for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")}
    names["bos"] = names["bos"] or names["cls"]
    names["eos"] = names["eos"] or names["sep"]
    flags = _added_by_template(files.tokenizer, names)
    found: dict[str, int] = {}
    for role, text in names.items():
        if text is not None and text in ids:
            found[role] = ids[text]
    for source in (files.model_config.values, files.generation):
        for role in names:
            token_id = source.get(f"{role}_token_id")
            if role not in found and _is_id(token_id, n_tokens):
                found[role] = token_id
    known = {ids[text] for text in _ENGINES_ENDS if text in ids}
    _name_other_ends(found, files, n_tokens, known)
    metadata = {_KEYS[role]: u32(found[role]) for role in _KEYS if role in found}
    for role in ("bos", "eos", "sep"):
        configured = files.config.get(f"add_{role}_token")
        if role not in flags and isinstance(configured, bool):
            flags[role] = configured
    flags.setdefault("bos", adds_bos and not files.tokenizer.get("post_processor"))
    metadata |= {f"tokenizer.ggml.add_{role}_token": boolean(value) for role, value in flags.items()}
    return metadata


def _is_id(value: Any, n_tokens: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < n_tokens


def _name_other_ends(found: dict[str, int], files: TokenizerFiles, n_tokens: int, known: set[int]) -> None:
    """A list of end tokens: the first stands in for a missing `eos`, others become end of turn and end of message.

    There are keys for two only, so those that the engine knows by their text are left to it.
    """
    ends: list[int] = []
    for source in (files.generation, files.model_config.values):
        value = source.get("eos_token_id")
        if isinstance(value, list):
            ends += [v for v in value if _is_id(v, n_tokens) and v not in ends]
    if ends and "eos" not in found:
        found["eos"] = ends[0]
    others = [v for v in ends if v != found.get("eos") and v not in known]
    for role, token_id in zip(("eot", "eom"), others, strict=False):
        found.setdefault(role, token_id)


def _added_by_template(tokenizer: Json, names: dict[str, str | None]) -> dict[str, bool]:
    """Which tokens the post-processor adds around a text. May name `bos` and `eos` after what it adds."""
    flags: dict[str, bool] = {}
    for processor in _processors(tokenizer.get("post_processor")):
        kind = processor.get("type")
        if kind == "ByteLevel":
            flags.setdefault("bos", False)
            flags.setdefault("eos", False)
        elif kind in ("RobertaProcessing", "BertProcessing"):
            flags |= {"bos": True, "eos": True, "sep": True}
        elif kind == "TemplateProcessing":
            _read_template(processor, names, flags)
    return flags


def _processors(node: Any) -> Iterator[Json]:
    if isinstance(node, dict):
        inner = node.get("processors")
        yield from (p for p in inner if isinstance(p, dict)) if isinstance(inner, list) else (node,)


def _read_template(processor: Json, names: dict[str, str | None], flags: dict[str, bool]) -> None:
    single, pair = (_special_ids(processor.get(key)) for key in ("single", "pair"))
    if len(single) < 2:
        return
    first, last = single[0], single[-1]
    if first is not None:
        if names["bos"] is None:
            names["bos"] = first
        flags["bos"] = first in (names["bos"], names["cls"])
    if last is not None:
        if names["eos"] is not None and names["eos"] != last:
            names["eot"] = names["eos"]  # the text ends with another token than an answer does
        names["eos"] = last
        flags["eos"] = True
    ends = (names["sep"], names["eos"])
    middle = pair[1 if first is not None and pair[:1] == [first] else 0 :]
    middle = middle[: -1 if last is not None and middle[-1:] == [last] else None][1:-1]  # between the two texts
    if middle and middle[0] is not None:
        flags["sep"] = middle[-1] in ends if len(middle) == 2 else middle[0] in ends and last is None


def _special_ids(template: Any) -> list[str | None]:
    """The special token's text at each place of a template, None where the text goes."""
    places = template if isinstance(template, list) else []
    tokens = [place.get("SpecialToken") if isinstance(place, dict) else None for place in places]
    ids = [token.get("id") if isinstance(token, dict) else None for token in tokens]
    return [text if isinstance(text, str) else None for text in ids]
