"""The tokenizers that are recorded: one of each kind and pre-tokenizer, trained on the test texts themselves."""

from __future__ import annotations

import base64
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.quantize.checkpoint.texts import PIECES

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
CL100K = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = (
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SEED_CODER = (
    CONTRACTIONS + "|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)
DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"""
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(pattern: str) -> Any:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_level(*steps: Any, use_regex: bool = False) -> Any:
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    return pre_tokenizers.Sequence([*steps, last]) if steps else last


BYTE_LEVEL = {
    "gpt-2": byte_level(use_regex=True),
    "smollm": byte_level(pre_tokenizers.Digits(individual_digits=True), use_regex=True),
    "starcoder": byte_level(pre_tokenizers.Digits(individual_digits=True), use_regex=True),
    "llama-bpe": byte_level(split(CL100K)),
    "dbrx": byte_level(split(CL100K)),
    "qwen2": byte_level(split(QWEN2)),
    "qwen35": byte_level(split(QWEN35)),
    "gpt-4o": byte_level(split(O200K)),
    "tekken": byte_level(split(TEKKEN)),
    "seed-coder": byte_level(split(SEED_CODER)),
    "deepseek-v3": byte_level(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK_V3)),
}
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
)


def make_byte_level(name: str) -> dict[str, Any]:
    whole_words = name in ("llama-bpe", "tekken")
    tokenizer = Tokenizer(models.BPE(ignore_merges=whole_words))
    tokenizer.pre_tokenizer = BYTE_LEVEL[name]
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(PIECES, trainer)
    special = ["<|begin|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}
    config["clean_up_tokenization_spaces"] = name == "starcoder"
    if name in ("llama-bpe", "tekken"):
        begin = tokenizer.token_to_id("<|begin|>")
        template = processors.TemplateProcessing(
            single="<|begin|> $A", pair="<|begin|> $A <|begin|>:1 $B:1", special_tokens=[("<|begin|>", begin)]
        )
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
        config["bos_token"] = "<|begin|>"
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return {"tokenizer.json": tokenizer.to_str(), "tokenizer_config.json": config, "chat_template.jinja": CHAT}


def train_pieces(*, prefix: bool) -> bytes:
    """A SentencePiece BPE model like Llama 2's (`prefix`) or Gemma's."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(PIECES), model_writer=model, vocab_size=520, model_type="bpe", byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=prefix, split_digits=True, allow_whitespace_only_pieces=True, hard_vocab_limit=False,
        unk_id=0 if prefix else 3, bos_id=1 if prefix else 2, eos_id=2 if prefix else 1, pad_id=-1 if prefix else 0,
        minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


def make_pieces(*, prefix: bool, with_model: bool) -> dict[str, Any]:
    """tokenizer.json as transformers derives it from the model: merges are all pairs that make a piece, by score."""
    data = train_pieces(prefix=prefix)
    processor = sentencepiece.SentencePieceProcessor(model_proto=data)
    pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    ids = {piece: i for i, piece in enumerate(pieces)}
    merges = []
    for merged, merged_id in ids.items():
        pairs = [(merged[:k], merged[k:]) for k in range(1, len(merged)) if merged[:k] in ids and merged[k:] in ids]
        pairs.sort(key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        merges += [(pair, processor.get_score(merged_id)) for pair in pairs]
    merges = [pair for pair, score in sorted(merges, key=lambda m: m[1], reverse=True)]
    tokenizer = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps: list[Any] = [normalizers.Prepend("\u2581")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        + ([decoders.Strip(" ", 1, 0)] if prefix else [])
    )
    begin = processor.bos_id()
    begin_text, end_text = processor.id_to_piece(begin), processor.id_to_piece(processor.eos_id())
    special = [begin_text, end_text, "<unk>"] + ([] if prefix else ["<pad>"])
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    tokenizer.add_special_tokens([AddedToken("<end_of_turn>", special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin_text} $A", pair=f"{begin_text} $A {begin_text}:1 $B:1", special_tokens=[(begin_text, begin)]
    )
    config: dict[str, Any] = {
        "tokenizer_class": "LlamaTokenizer" if prefix else "GemmaTokenizer",
        "bos_token": begin_text, "eos_token": end_text, "unk_token": "<unk>", "add_bos_token": True,
        "add_eos_token": False, "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {
            str(i): {"content": t.content, "special": t.special, "normalized": t.normalized}
            for i, t in tokenizer.get_added_tokens_decoder().items()
        },
    }  # fmt: skip
    if not prefix:
        config["pad_token"] = "<pad>"
    files: dict[str, Any] = {
        "tokenizer.json": tokenizer.to_str(), "tokenizer_config.json": config, "chat_template.jinja": CHAT,
    }  # fmt: skip
    if with_model:
        files["tokenizer.model"] = {"base64": base64.b64encode(data).decode()}
    return files


def make_word_pieces() -> dict[str, Any]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(PIECES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("[CLS]", "[SEP]")],
    )  # fmt: skip
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, **{f"{k}_token": v for k, v in names.items()}}
    return {"tokenizer.json": tokenizer.to_str(), "tokenizer_config.json": config}


TOKENIZERS: dict[str, Callable[[], dict[str, Any]]] = {
    **{name: (lambda name=name: make_byte_level(name)) for name in BYTE_LEVEL},
    "pieces": lambda: make_pieces(prefix=True, with_model=True),
    "pieces-json-only": lambda: make_pieces(prefix=True, with_model=False),
    "gemma": lambda: make_pieces(prefix=False, with_model=True),
    "gemma-json-only": lambda: make_pieces(prefix=False, with_model=False),
    "word-pieces": make_word_pieces,
}


def record_tokenizer(name: str, texts: list[str]) -> dict[str, Any]:
    """Files, and the ids of all texts without and with the tokens that are added around them."""
    files = TOKENIZERS[name]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(files["tokenizer.json"], encoding="utf-8")
        tokenizer = Tokenizer.from_file(str(path))
    files["tokenizer.json"] = json.dumps(json.loads(files["tokenizer.json"]), ensure_ascii=False)
    return {
        "files": files,
        "pre": name if name in BYTE_LEVEL else "bert-bge" if name == "word-pieces" else "default",
        "ids": [tokenizer.encode(t, add_special_tokens=False).ids for t in texts],
        "with_special": tokenizer.encode(texts[0]).ids,
    }
