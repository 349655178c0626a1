"""How much memory a model and a context take: weights, KV cache, running state, compute buffers.

Knows shapes and the engine's rules for sizing buffers (`llama_kv_cache`, `llama_kv_cache_iswa`,
`llama_memory_recurrent`, `sched_reserve`); knows no machine. Weights, KV and state are exact; the compute buffer is
the largest of a few moments of the graph, found by comparison with the engine's own plan over two dozen models.
"""

from __future__ import annotations

from dataclasses import dataclass

from localrun.hardware.shape import Layer, ModelShape
from localrun.params import KVType

KV_BYTES = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""Bytes per value: a Q8_0 block is 34 bytes for 32 values, a Q4_0 block 18."""
_CELL_PADDING = 256
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ContextSize:
    """What of a context's parameters its memory depends on."""

    n_cells: int
    """Tokens of all sequences together."""
    n_seq_max: int = 8
    n_batch: int = 2048
    n_ubatch: int = 512
    n_outputs: int = 32
    kv_type: KVType = "f16"
    flash_attention: bool = False

    @property
    def padded_cells(self) -> int:
        return -(-self.n_cells // _CELL_PADDING) * _CELL_PADDING

    @property
    def rows(self) -> int:
        """Tokens of the largest graph."""
        return max(1, min(self.padded_cells, self.n_batch, self.n_ubatch))


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes by kind."""

    weights: int
    kv: int
    state: int
    compute: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.state + self.compute


def footprint(shape: ModelShape, context: ContextSize) -> Footprint:
    """The memory of a model and one context on a single device."""
    return Footprint(
        weights=shape.weight_bytes,
        kv=sum(layer_kv_bytes(shape, layer, context) for layer in shape.layers),
        state=sum(layer_state_bytes(shape, layer, context) for layer in shape.layers),
        compute=compute_bytes(shape, context),
    )


def layer_kv_bytes(shape: ModelShape, layer: Layer, context: ContextSize) -> int:
    """Keys and values of one layer: as many cells as the context has, or as its window needs."""
    cells = window_cells(shape, context) if layer.windowed else context.padded_cells
    # Without flash attention values are stored transposed, and every layer gets the width of the widest.
    v_width = shape.v_width if layer.v_width and not context.flash_attention else layer.v_width
    return int(cells * (layer.k_width + v_width) * KV_BYTES[context.kv_type])


def window_cells(shape: ModelShape, context: ContextSize) -> int:
    """Cells of the layers with a window: each sequence has one, and a batch must fit besides."""
    cells = min(context.padded_cells, shape.window * context.n_seq_max + min(context.n_ubatch, context.n_batch))
    return -(-cells // _CELL_PADDING) * _CELL_PADDING


def layer_state_bytes(shape: ModelShape, layer: Layer, context: ContextSize) -> int:
    """Running state of one layer, for every sequence, in F32."""
    return 4 * shape.state_width * context.n_seq_max if layer.recurrent else 0


def kv_bytes_per_token(shape: ModelShape, kv_type: KVType = "f16") -> int:
    """Bytes that one more token costs: the layers that keep every token."""
    values = sum(layer.k_width + layer.v_width for layer in shape.layers if not layer.windowed)
    return int(values * KV_BYTES[kv_type])


def read_bytes_per_token(shape: ModelShape, context: ContextSize, depth: int) -> int:
    """Bytes read to decode one token behind `depth` others: active weights, and the KV cache so far."""
    cache = 0
    for layer in shape.layers:
        seen = min(depth, shape.window) if layer.windowed else depth
        cache += int(seen * (layer.k_width + layer.v_width) * KV_BYTES[context.kv_type])
        if layer.recurrent:
            cache += 8 * shape.state_width  # read and written
    return shape.active_bytes + cache


def compute_bytes(shape: ModelShape, context: ContextSize) -> int:
    """The compute buffer: the masks, and the largest moment of the graph (attention, feed-forward or output)."""
    unit = 4 * context.rows  # bytes of one F32 value for every row of the batch
    residual = unit * shape.n_embd
    masks = _mask_bytes(shape, context)
    attention = _attention_bytes(shape, context)
    if shape.has_state:
        # The recurrent layers project to twice the inner width and keep conv and scan results beside it.
        attention = max(attention, unit * 4 * (shape.n_embd + _inner_width(shape)))
    feed_forward = 3 * unit * shape.n_ff + 4 * residual if not shape.n_ff_expert else 0
    experts = 0
    if shape.n_experts and shape.n_ff_expert:
        used = max(1, shape.n_experts_used)
        feed_forward = 3 * unit * shape.n_ff_expert * used + 4 * residual
        # Each chosen expert's result is kept, and once more after weighting, until they are added up.
        experts = 2 * residual * used + 6 * residual + 2 * unit * shape.n_experts
    logits = 4 * context.n_outputs * shape.n_vocab + residual
    return masks + max(attention, feed_forward, experts, logits)


def _inner_width(shape: ModelShape) -> int:
    return 2 * shape.n_embd


def _mask_bytes(shape: ModelShape, context: ContextSize) -> int:
    """Attention masks, one for each kind of cache: F16 with flash attention, F32 without."""
    if not shape.attends:
        return 0
    each = 2 if context.flash_attention else 4
    cells = 0
    if any(layer.k_width and not layer.windowed for layer in shape.layers):
        cells += context.padded_cells
    if shape.window:
        cells += window_cells(shape, context)
    return each * context.rows * cells


def _attention_bytes(shape: ModelShape, context: ContextSize) -> int:
    """Queries, keys, values and residuals; without flash attention also the score of every row for every cell."""
    if not shape.attends:
        return 0
    unit = 4 * context.rows
    scores = 0 if context.flash_attention else unit * context.padded_cells * shape.n_heads
    if shape.mla_latent:
        # Queries are multiplied into the latent space, joined with the rotary part, and come back as wide.
        wide = shape.n_heads * (shape.mla_key + 2 * shape.mla_latent) + shape.n_heads * 64
        return scores + unit * (wide + 6 * shape.n_embd)
    queries = 3 if shape.architecture.startswith("gemma") else 2
    return scores + unit * (3 * shape.n_embd + queries * shape.q_width + 2 * shape.kv_width)
