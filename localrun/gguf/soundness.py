"""Values in a header with which the engine would end the process instead of refusing the file.

Knows the assertions of the engine's loader (`llama-model.cpp`, `llama-vocab.cpp`, `ops.cpp`) and what no model can be
run with. Knows no tensor data. Invariant: a value of the right type that passes here trips none of those assertions;
a value of a wrong type, a shape that does not fit, or a missing key the engine refuses by itself, with an error. Ids
of special tokens outside the vocabulary pass on purpose: real files have them, and the engine takes a default.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, cast

from localrun.errors import ModelFileError
from localrun.gguf.foreign import shown
from localrun.gguf.known import is_known_sound, remember_sound
from localrun.gguf.types import ValueType
from localrun.gguf.values import GGUFArray, Value

if TYPE_CHECKING:
    from localrun.gguf.header import GGUFHeader

MAX_LAYERS = 512
"""`LLAMA_MAX_LAYERS`."""
MAX_EXPERTS = 1024
"""`LLAMA_MAX_EXPERTS`."""
_MOST = (1 << 31) - 1
"""The engine counts with 32-bit integers that have a sign."""
_ROPE_SCALING = ("none", "linear", "yarn", "longrope")
_NOT_BELOW_ZERO = (
    "attention.layer_norm_rms_epsilon",
    "attention.layer_norm_epsilon",
    "attention.group_norm_epsilon",
    "rope.freq_base",
    "rope.scaling.factor",
)
_LARGE = ("embedding_length", "context_length")
_SMALL = ("feed_forward_length", "attention.head_count", "attention.head_count_kv", "vocab_size")
_DAMAGED = "fetch the file again; if it stays so, it was damaged where it was made"
_TOKENS = "tokenizer.ggml.tokens"
_NO_VOCABULARY = ("none", "no_vocab")
_BYTE_TOKENS = ("llama",)
"""Tokenizers that fall back to a token for each byte and find none at the cost of the process."""


def check_values(header: GGUFHeader) -> None:
    """Refuse scalars of the architecture that the engine aborts on. Raises `ModelFileError`, which names the key."""
    _check_layers(header)
    for key in _LARGE:
        number = header.of_architecture(key)
        if number is not None and not 0 < number <= _MOST:
            raise _wrong(header, key, number, f"between 1 and {_MOST}")
    for key in _SMALL:  # zero where a model has no such part
        number = header.of_architecture(key)
        if number is not None and not 0 <= number <= _MOST:
            raise _wrong(header, key, number, f"at most {_MOST}")
    for key in _NOT_BELOW_ZERO:
        value = header.metadata.get(f"{header.architecture}.{key}")
        if isinstance(value, float) and not 0 <= value < math.inf:
            raise _wrong(header, key, value, "a number from 0 on")
    for name, value in header.metadata.items():
        if name.startswith(f"{header.architecture}.") and isinstance(value, float) and math.isnan(value):
            raise _wrong(header, name.removeprefix(f"{header.architecture}."), value, "a number")
    scaling = header.text(f"{header.architecture}.rope.scaling.type")
    if scaling is not None and scaling not in _ROPE_SCALING:
        raise _wrong(header, "rope.scaling.type", repr(scaling), f"one of {', '.join(_ROPE_SCALING)}")
    _check_experts(header)


def _check_layers(header: GGUFHeader) -> None:
    layers = header.n_layers
    if layers is None:
        return
    if not 0 < layers <= MAX_LAYERS:
        raise _wrong(header, "block_count", layers, f"between 1 and {MAX_LAYERS}")
    for key in ("nextn_predict_layers", "posnet.block_count", "convnext.block_count"):
        number = header.of_architecture(key)
        if number is not None and number > layers:
            raise _wrong(header, key, number, f"at most the block_count {layers}")


def _check_experts(header: GGUFHeader) -> None:
    count = header.of_architecture("expert_count") or 0
    used = header.of_architecture("expert_used_count") or 0
    groups = header.of_architecture("expert_group_count") or 0
    groups_used = header.of_architecture("expert_group_used_count") or 0
    if not 0 <= count <= MAX_EXPERTS:
        raise _wrong(header, "expert_count", count, f"at most {MAX_EXPERTS}")
    if header.architecture in {"hunyuan_vl", "hunyuan-dense"} and count <= 1:
        return  # there the engine takes both counts for none
    if used > count:
        raise _wrong(header, "expert_used_count", used, f"at most the expert_count {count}")
    if count and not used:
        raise _wrong(header, "expert_used_count", used, f"between 1 and the expert_count {count}")
    if groups and (groups >= count or (groups > 1 and count % groups)):
        raise _wrong(header, "expert_group_count", groups, f"a divisor of the expert_count {count}, and less")
    if groups > 1 and not 0 < groups_used < groups:
        raise _wrong(header, "expert_group_used_count", groups_used, f"between 1 and {groups - 1}")


def check_vocabulary(header: GGUFHeader) -> None:
    """Refuse a vocabulary that no text can be made tokens with. Raises `ModelFileError`, which names the key."""
    model = header.metadata.get("tokenizer.ggml.model")
    if model is None:
        raise _fault(header, "does not say which tokenizer it has (tokenizer.ggml.model is missing)")
    if model in _NO_VOCABULARY:
        raise _fault(
            header,
            f"has tokenizer.ggml.model {model!r}: it has no vocabulary, so no text can be given to it",
            "use a GGUF of the model that holds its vocabulary",
        )
    tokens = header.array(_TOKENS)
    if tokens is None or tokens.element_type != ValueType.STRING:
        raise _fault(header, f"has no list of tokens ({_TOKENS})")
    if not tokens:
        raise _fault(header, f"has an empty vocabulary ({_TOKENS})")
    for name in ("scores", "token_type"):
        values = header.array(f"tokenizer.ggml.{name}")
        if values is not None and len(values) < len(tokens):
            raise _fault(header, f"has {len(values)} values in tokenizer.ggml.{name} for {len(tokens)} tokens")
    _check_scores(header)
    if not is_known_sound(header.path):  # 0.1 s for 262k tokens, once for each file
        _check_texts(header, tokens, model)
        remember_sound(header.path)
    _check_added(header, model, len(tokens))


def _check_scores(header: GGUFHeader) -> None:
    scores = header.array("tokenizer.ggml.scores")
    if scores is None or scores.element_type != ValueType.FLOAT32:
        return
    values = cast("list[float]", scores.values)
    if not math.isnan(sum(values)):  # the usual case, quickly; infinities of both signs end up here too
        return
    for number, score in enumerate(values):
        if math.isnan(score):
            raise _fault(header, f"has the score nan for token {number} (tokenizer.ggml.scores)")


def _check_texts(header: GGUFHeader, tokens: GGUFArray, model: Value) -> None:
    texts = tokens.raw()
    known = set(texts)
    # The engine gives an empty token a name of its own.
    if len(known) < len(texts) and len(known) < len(texts) - texts.count(b"") + (b"" in known):
        twice = next(text for text, count in Counter(texts).items() if text and count > 1)
        raise _fault(header, f"has the token {twice.decode('utf-8', 'replace')!r} twice in {_TOKENS}")
    if model not in _BYTE_TOKENS:
        return
    for byte in range(256):
        if b"<0x%02X>" % byte not in known and bytes([byte]) not in known:
            raise _fault(header, f"has no token for the byte {byte} in {_TOKENS}, '<0x{byte:02X}>'")


def _check_added(header: GGUFHeader, model: Value, n_tokens: int) -> None:
    """Unigram tokenizers have no beginning of a text by default, so that it must be named where it is added."""
    if model == "t5" and header.metadata.get("tokenizer.ggml.add_bos_token") is True:
        bos = header.integer("tokenizer.ggml.bos_token_id")
        if bos is None or not 0 <= bos < n_tokens:
            raise _fault(header, f"adds tokenizer.ggml.bos_token_id {bos}, which is none of its {n_tokens} tokens")


def _wrong(header: GGUFHeader, key: str, value: object, wanted: str) -> ModelFileError:
    return _fault(header, f"has {header.architecture}.{key} {value}, which should be {wanted}")


def _fault(header: GGUFHeader, what: str, hint: str = _DAMAGED) -> ModelFileError:
    return ModelFileError(f"{shown(header.path)} {what}", hint=hint)
