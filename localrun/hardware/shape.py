"""What of a model's header decides how much memory it takes: layers, heads, widths, experts, windows, states.

Knows the keys of GGUF headers and the rules by which llama.cpp reads them (`load_arch_hparams` of each architecture,
`llama_hparams`); knows no machine. Invariant: a figure that the header does not give is 0, never a guess, except where
llama.cpp itself has a default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from localrun.gguf import GGUFHeader, TensorInfo

# Every n-th layer sees everything, the others a window, where the header does not list the layers.
_WINDOW_PERIODS = {
    "afmoe": 4, "cohere2": 4, "exaone-moe": 4, "exaone4": 4, "gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2,
    "llama4": 4, "mellum": 4, "muse-glimmer": 4, "olmo2": 4, "plamo3": 8,
}  # fmt: skip
_WINDOW_PERIODS_FULL_FIRST = {"cohere2moe": 4, "laguna": 4, "smallthinker": 4}
_DEFAULT_WINDOWS = {"gemma2": 4096, "exaone-moe": 128, "llama4": 8192}
_ALL_RECURRENT = ("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7")
_BOTH = ("falcon-h1",)
"""Every layer has attention and a running state."""
_EVERY_FOURTH_ATTENDS = ("qwen3next", "qwen35", "qwen35moe", "minimax-01", "qwen4exp")
_LAYER = re.compile(r"blk\.(\d+)\.")
_EXPERTS = re.compile(r"_(?:ch)?exps\.")


@dataclass(frozen=True, slots=True)
class Layer:
    """One repeating layer."""

    k_width: int
    """Values of the keys of one token; 0 without attention."""
    v_width: int
    windowed: bool
    recurrent: bool
    weight_bytes: int
    expert_bytes: int
    """Of those, in expert tensors: only a few experts are read for a token."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The figures of one model."""

    architecture: str
    n_ctx_train: int
    n_embd: int
    n_heads: int
    q_width: int
    """Values of the queries of one token."""
    kv_width: int
    """Values of the widest layer's keys before they are cached."""
    n_ff: int
    n_ff_expert: int
    n_experts: int
    n_experts_used: int
    n_vocab: int
    window: int
    mla_latent: int
    """Width of the compressed keys and values (MLA); 0 elsewhere."""
    mla_key: int
    state_width: int
    """Values of running state of one sequence in one recurrent layer (F32)."""
    layers: tuple[Layer, ...]
    input_bytes: int
    """The token embeddings, which stay in RAM: a token reads one row of each."""
    output_bytes: int
    """The output layer; a tied one is read from the embedding, and copied to a GPU that takes the layer."""
    tied: bool
    other_bytes: int

    @property
    def weight_bytes(self) -> int:
        """All weights, each once."""
        output = 0 if self.tied else self.output_bytes
        return self.input_bytes + output + self.other_bytes + sum(layer.weight_bytes for layer in self.layers)

    @property
    def active_bytes(self) -> int:
        """Bytes of weights read for one token: everything but the embedding's other rows and the idle experts."""
        share = self.n_experts_used / self.n_experts if self.n_experts else 1.0
        layers = sum(l.weight_bytes - l.expert_bytes + int(l.expert_bytes * share) for l in self.layers)  # noqa: E741
        return layers + self.output_bytes + self.other_bytes

    @property
    def v_width(self) -> int:
        """Values of the widest layer's values of one token."""
        return max((layer.v_width for layer in self.layers), default=0)

    @property
    def attends(self) -> bool:
        """Whether any layer has a KV cache."""
        return any(layer.k_width for layer in self.layers)

    @property
    def has_state(self) -> bool:
        return any(layer.recurrent for layer in self.layers)

    @property
    def is_known(self) -> bool:
        """Whether the header gave what the KV cache depends on."""
        return bool(self.layers) and self.n_embd > 0 and (self.attends or self.has_state)


def model_shape(header: GGUFHeader) -> ModelShape:
    """The shape that `header` describes. Raises nothing: a figure that is missing is 0."""
    keys = _Keys(header)
    n_layers = max(0, (header.n_layers or 0) - keys.number("nextn_predict_layers"))
    heads, kv_heads = keys.by_layer("attention.head_count", n_layers), keys.kv_heads(n_layers)
    n_heads, n_embd = max(heads, default=0), header.n_embd or 0
    head = n_embd // n_heads if n_heads else 0
    key, value = keys.number("attention.key_length", head), keys.number("attention.value_length", head)
    window, windowed = _windows(keys, n_layers)
    recurrent = _recurrent(keys, n_layers, kv_heads)
    weights = _weights(header)
    latent = keys.number("attention.kv_lora_rank") if keys.number("attention.key_length_mla") else 0
    key_swa, value_swa = keys.number("attention.key_length_swa", key), keys.number("attention.value_length_swa", value)
    kept = n_layers - keys.number("attention.shared_kv_layers")
    if keys.architecture == "gemma3n":
        kept = min(n_layers, 20)  # `n_layer_kv_from_start`: later layers read the caches of earlier ones
    layers = []
    for i in range(n_layers):
        attends = (not recurrent[i] or keys.architecture in _BOTH) and i < kept
        k = (key_swa if windowed[i] else key) * kv_heads[i] if attends else 0
        v = (value_swa if windowed[i] else value) * kv_heads[i] if attends and not latent else 0
        total, experts = weights.layers.get(i, (0, 0))
        layers.append(Layer(k, v, windowed[i], recurrent[i], total, experts))
    mla_key = keys.number("attention.key_length_mla")
    return ModelShape(
        architecture=keys.architecture,
        n_ctx_train=header.n_ctx_train or 0,
        n_embd=n_embd,
        n_heads=n_heads,
        q_width=n_heads * (mla_key if latent else key),
        kv_width=max((layer.k_width for layer in layers), default=0),
        n_ff=header.of_architecture("feed_forward_length") or 0,
        n_ff_expert=keys.number("expert_feed_forward_length"),
        n_experts=keys.number("expert_count"),
        n_experts_used=keys.number("expert_used_count"),
        n_vocab=header.n_vocab or 0,
        window=window,
        mla_latent=latent,
        mla_key=mla_key,
        state_width=_state_width(keys, n_embd, n_heads),
        layers=tuple(layers),
        input_bytes=weights.embedding + weights.looked_up,
        output_bytes=weights.output or weights.embedding,
        tied=not weights.output,
        other_bytes=weights.other + sum(total for i, (total, _) in weights.layers.items() if i >= n_layers),
    )


class _Keys:
    """Typed access to the keys of the architecture."""

    def __init__(self, header: GGUFHeader) -> None:
        self._header = header
        self.architecture = header.architecture

    def number(self, key: str, default: int = 0) -> int:
        value = self._header.of_architecture(key)
        return value if value is not None and value >= 0 else default

    def array(self, key: str) -> list[int] | None:
        values = self._header.array(f"{self.architecture}.{key}")
        return [int(value) for value in values if not isinstance(value, str)] if values is not None else None

    def by_layer(self, key: str, n_layers: int, default: int = 0) -> list[int]:
        """One number a layer, whether the header has a list or one number for all."""
        values = self.array(key)
        if values is not None:
            return [values[i] if i < len(values) else 0 for i in range(n_layers)]
        return [self.number(key, default)] * n_layers

    def kv_heads(self, n_layers: int) -> list[int]:
        heads = self.by_layer("attention.head_count", n_layers)
        if self.array("attention.head_count_kv") is None and not self.number("attention.head_count_kv"):
            return heads
        return self.by_layer("attention.head_count_kv", n_layers)


def _windows(keys: _Keys, n_layers: int) -> tuple[int, list[bool]]:
    """The window in tokens, and which layers have it."""
    name = keys.architecture
    window = keys.number("attention.sliding_window", _DEFAULT_WINDOWS.get(name, 0))
    if name == "llama4":  # the engine takes its own chunk size whatever the header says, unless it says 0
        window = _DEFAULT_WINDOWS[name] if window else 0
    listed = keys.array("attention.sliding_window_pattern")
    if not window or name == "phi3":  # phi3's windows are switched off in the engine
        return 0, [False] * n_layers
    if listed is not None:
        return window, [bool(listed[i]) if i < len(listed) else False for i in range(n_layers)]
    first = name in _WINDOW_PERIODS_FULL_FIRST
    period = keys.number(
        "attention.sliding_window_pattern", (_WINDOW_PERIODS_FULL_FIRST | _WINDOW_PERIODS).get(name, 0)
    )
    if not period:
        return 0, [False] * n_layers
    full = 0 if first else period - 1
    return window, [i % period != full for i in range(n_layers)]


def _recurrent(keys: _Keys, n_layers: int, kv_heads: list[int]) -> list[bool]:
    name = keys.architecture
    if name in _ALL_RECURRENT or name in _BOTH:
        return [True] * n_layers
    listed = keys.array("attention.recurrent_layers")
    if listed is not None:
        return [bool(listed[i]) if i < len(listed) else False for i in range(n_layers)]
    if name in _EVERY_FOURTH_ATTENDS:
        interval = keys.number("full_attention_interval", 4) or 4
        return [(i + 1) % interval != 0 for i in range(n_layers)]
    if keys.number("ssm.state_size") or keys.number("shortconv.l_cache") or keys.number("kda.head_dim"):
        feed_forward = keys.by_layer("feed_forward_length", n_layers)
        dense_only = name.startswith("nemotron_h")  # its feed-forward layers have neither attention nor state
        return [not heads and not (dense_only and ff) for heads, ff in zip(kv_heads, feed_forward, strict=True)]
    return [False] * n_layers


def _state_width(keys: _Keys, n_embd: int, n_heads: int) -> int:
    """Values of one recurrent layer's state (`llama_hparams::n_embd_r` and `n_embd_s`)."""
    if wkv := keys.number("wkv.head_size"):
        return keys.number("token_shift_count", 2) * n_embd + n_embd * wkv
    if short := keys.number("shortconv.l_cache"):
        return n_embd * (short - 1)
    kernel, inner = keys.number("ssm.conv_kernel"), keys.number("ssm.inner_size")
    if kda := keys.number("kda.head_dim"):
        return 3 * ((kernel or 4) - 1) * n_heads * kda + kda * kda * n_heads
    state = keys.number("ssm.state_size")
    convolution = max(0, kernel - 1) * (inner + 2 * keys.number("ssm.group_count") * state)
    return convolution + state * inner


@dataclass(slots=True)
class _Weights:
    embedding: int = 0
    looked_up: int = 0
    """Embeddings of single layers (Gemma 3n and 4)."""
    output: int = 0
    other: int = 0
    layers: Mapping[int, tuple[int, int]] = None  # type: ignore[assignment]


def _weights(header: GGUFHeader) -> _Weights:
    """Bytes by place: llama.cpp pads each tensor to the buffer's alignment, 32 bytes on a CPU."""
    found = _Weights()
    layers: dict[int, tuple[int, int]] = {}
    for tensor in header.tensors:
        size = _padded(tensor)
        if match := _LAYER.match(tensor.name):
            total, experts = layers.get(int(match[1]), (0, 0))
            layers[int(match[1])] = (total + size, experts + (size if _EXPERTS.search(tensor.name) else 0))
        elif tensor.name == "token_embd.weight":
            found.embedding += size
        elif tensor.name == "per_layer_token_embd.weight":
            found.looked_up += size
        elif tensor.name == "output.weight":
            found.output += size
        else:
            found.other += size
    found.layers = layers
    return found


def _padded(tensor: TensorInfo) -> int:
    return -(-tensor.n_bytes // 32) * 32
