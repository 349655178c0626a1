"""The tiny models that are recorded: one for each architecture and each of its variants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Weights = list[tuple[str, str, list[int]]]

SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    name: str
    config_class: str
    tokenizer: str
    settings: dict[str, Any]
    model_class: str = "AutoModelForCausalLM"
    dtype: str = "BF16"
    n_shards: int = 2
    norms_around: float = 1.0
    files: dict[str, Any] = field(default_factory=dict)
    rewritten: dict[str, Any] = field(default_factory=dict)
    """Keys of config.json set after transformers saved it: the form older versions write."""
    left_out: tuple[str, ...] = ()
    nested: dict[str, Any] = field(default_factory=dict)
    """The same for `text_config`."""
    nested_left_out: tuple[str, ...] = ()
    loading: dict[str, Any] = field(default_factory=dict)
    forwarding: dict[str, Any] = field(default_factory=dict)
    folder_name: str = "Tiny-Test-1.5B-Instruct"
    packed_experts: bool = False
    table_gelu: bool = False
    """The engine looks GELU up in a table of half-precision numbers: the reference computes it the same way."""

    def stored_weights(self, weights: Weights) -> Weights:
        """The names and shapes as the checkpoint stores them."""
        if not self.packed_experts:
            return weights
        stored: Weights = []
        for name, dtype, shape in weights:
            if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
                experts, columns, rows = shape
                stored.append((f"{name}_blocks", "U8", [experts, rows, columns // 32, 16]))
                stored.append((f"{name}_scales", "U8", [experts, rows, columns // 32]))
            else:
                stored.append((name, dtype, shape))
        return stored


LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64, "rope_theta": 500000.0,
}  # fmt: skip
GENERATION = {
    "generation_config.json": {"temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1, "eos_token_id": [2, 5]}
}
CARD = {
    "README.md": "---\nlicense: apache-2.0\nlanguage:\n- en\ntags:\n- test\n"
    "base_model: someone/Tiny-Base-1B\n---\n# Tiny\n"
}
GPT_OSS = SMALL | {
    "intermediate_size": 64, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 32, "sliding_window": 8,
    "rope_parameters": {
        "rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True,
        "original_max_position_embeddings": 64, "rope_theta": 150000.0,
    },
}  # fmt: skip

MODELS = (
    Recorded("llama2", "LlamaConfig", "pieces", SMALL | {"num_key_value_heads": 4}, files=CARD | GENERATION),
    Recorded(
        "llama3", "LlamaConfig", "llama-bpe",
        SMALL | {"rope_parameters": LLAMA3, "tie_word_embeddings": True, "head_dim": 32},
    ),
    Recorded(
        "llama-biases", "LlamaConfig", "smollm", SMALL | {"attention_bias": True, "mlp_bias": True},
        rewritten={"rope_theta": 20000.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
        left_out=("rope_parameters", "head_dim"), dtype="F16", n_shards=1,
    ),
    Recorded("mistral", "MistralConfig", "tekken", SMALL | {"head_dim": 32, "sliding_window": None}),
    Recorded("qwen2", "Qwen2Config", "qwen2", SMALL | {"tie_word_embeddings": True}),
    Recorded("qwen3", "Qwen3Config", "qwen2", SMALL | {"head_dim": 32}),
    Recorded(
        "qwen3moe", "Qwen3MoeConfig", "qwen2",
        SMALL | {
            "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
            "norm_topk_prob": True,
        },
    ),
    Recorded(
        "gemma2", "Gemma2Config", "gemma",
        SMALL | {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8}, norms_around=0.0, table_gelu=True,
    ),
    Recorded(
        "gemma3", "Gemma3TextConfig", "gemma",
        SMALL | {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8, "num_hidden_layers": 7},
        model_class="Gemma3ForCausalLM", norms_around=0.0, table_gelu=True,
    ),
    Recorded(  # the form of Gemma 3 before transformers 5: rope settings at the top, the text part nested
        "gemma3-nested", "Gemma3Config", "gemma",
        {
            "text_config": SMALL | {
                "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8, "num_hidden_layers": 7,
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000000.0},
                },
            },
            "vision_config": {
                "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                "image_size": 28, "patch_size": 14,
            },
            "mm_tokens_per_image": 4,
        },
        model_class="Gemma3ForConditionalGeneration", norms_around=0.0, table_gelu=True,
        nested={
            "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "sliding_window_pattern": 6,
            "rope_scaling": {"rope_type": "linear", "factor": 4.0},
        },
        nested_left_out=("rope_parameters", "layer_types"),
    ),
    Recorded("phi3", "Phi3Config", "pieces", SMALL | {"sliding_window": None}),
    Recorded(
        "phi3-long", "Phi3Config", "pieces",
        SMALL | {
            "max_position_embeddings": 1024, "original_max_position_embeddings": 256, "rope_parameters": {
                "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
                "original_max_position_embeddings": 256,
                "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
            },
        },
    ),
    Recorded("smollm3", "SmolLM3Config", "llama-bpe", SMALL | {"num_hidden_layers": 5, "tie_word_embeddings": True}),
    Recorded(
        "granite", "GraniteConfig", "starcoder",
        SMALL | {
            "embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2,
            "tie_word_embeddings": True,
        },
    ),
    Recorded("olmo2", "Olmo2Config", "dbrx", SMALL),
    Recorded("gpt-oss", "GptOssConfig", "gpt-4o", GPT_OSS),
    Recorded(
        "gpt-oss-mxfp4", "GptOssConfig", "gpt-4o", GPT_OSS, packed_experts=True, n_shards=1,
        rewritten={"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}},
    ),
    Recorded(
        "bert", "BertConfig", "word-pieces",
        {k: v for k, v in SMALL.items() if "token_id" not in k and k != "num_key_value_heads"},
        model_class="AutoModel", table_gelu=True,
    ),
)  # fmt: skip
