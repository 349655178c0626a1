"""The rows of the table that most decoders share."""

from __future__ import annotations

from quantize.architectures.table import Rule, Transform

LAYER = "model.layers.{i}."
BLOCK = "blk.{i}."


def ends(*, tied: bool, norm: Transform | None = None, embedding: Transform | None = None) -> list[Rule]:
    """Embedding, last norm, output head. A tied head may be stored all the same; it is then left out."""
    rules = [
        Rule("model.embed_tokens.weight", "token_embd.weight", ("vocab", "embd"), embedding),
        Rule("model.norm.weight", "output_norm.weight", ("embd",), norm),
    ]
    if not tied:
        rules.append(Rule("lm_head.weight", "output.weight", ("vocab", "embd")))
    return rules


def attention(*, query: Transform | None = None, key: Transform | None = None, output_bias: bool = False) -> list[Rule]:
    """Projections and their optional biases; `query` and `key` are permutations where the engine wants them.

    `output_bias`: the engine reads a bias of the last projection, too.
    """
    source, target = LAYER + "self_attn.", BLOCK + "attn_"
    rules = [
        Rule(source + "q_proj.weight", target + "q.weight", ("q", "embd"), query),
        Rule(source + "k_proj.weight", target + "k.weight", ("kv", "embd"), key),
        Rule(source + "v_proj.weight", target + "v.weight", ("kv", "embd")),
        Rule(source + "o_proj.weight", target + "output.weight", ("embd", "q")),
        Rule(source + "q_proj.bias", target + "q.bias", ("q",), query, optional=True),
        Rule(source + "k_proj.bias", target + "k.bias", ("kv",), key, optional=True),
        Rule(source + "v_proj.bias", target + "v.bias", ("kv",), optional=True),
    ]
    if output_bias:
        rules.append(Rule(source + "o_proj.bias", target + "output.bias", ("embd",), optional=True))
    return rules


def feed_forward(*, bias: bool = False) -> list[Rule]:
    """The gated feed-forward network; with optional biases where the engine reads them."""
    source, target = LAYER + "mlp.", BLOCK + "ffn_"
    rules = [
        Rule(source + "gate_proj.weight", target + "gate.weight", ("ff", "embd")),
        Rule(source + "up_proj.weight", target + "up.weight", ("ff", "embd")),
        Rule(source + "down_proj.weight", target + "down.weight", ("embd", "ff")),
    ]
    if bias:
        rules += [
            Rule(source + "gate_proj.bias", target + "gate.bias", ("ff",), optional=True),
            Rule(source + "up_proj.bias", target + "up.bias", ("ff",), optional=True),
            Rule(source + "down_proj.bias", target + "down.bias", ("embd",), optional=True),
        ]
    return rules


def pre_norms() -> list[Rule]:
    """Norms before attention and before the feed-forward network."""
    return [
        Rule(LAYER + "input_layernorm.weight", BLOCK + "attn_norm.weight", ("embd",)),
        Rule(LAYER + "post_attention_layernorm.weight", BLOCK + "ffn_norm.weight", ("embd",)),
    ]


def head_norms(query: str = "head", key: str = "head", norm: Transform | None = None) -> list[Rule]:
    """Norms of queries and keys; the arguments name their sizes."""
    return [
        Rule(LAYER + "self_attn.q_norm.weight", BLOCK + "attn_q_norm.weight", (query,), norm),
        Rule(LAYER + "self_attn.k_norm.weight", BLOCK + "attn_k_norm.weight", (key,), norm),
    ]
