"""Asks llama.cpp's own grammar engine what it thinks of grammars and texts. Run as a process of its own.

stdin: a JSON list of [grammar, [text, ...]]; argument: a vocabulary-only GGUF file. stdout: a JSON list, `null` for a
grammar that llama.cpp refuses, else a list of booleans. A crash of the C++ side ends this process and not the test's.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys

import llama_cpp.llama_cpp as lib


def tokens_of(vocab: object, text: str) -> list[int]:
    data = text.encode()
    buffer = (lib.llama_token * (len(data) + 8))()
    n = lib.llama_tokenize(vocab, data, len(data), buffer, len(buffer), False, False)
    return list(buffer[:n])


def allowed(sampler: object, token: int) -> bool:
    data = (lib.llama_token_data * 1)(lib.llama_token_data(id=token, logit=0.0, p=0.0))
    array = lib.llama_token_data_array(data=data, size=1, selected=-1, sorted=False)
    lib.llama_sampler_apply(sampler, ctypes.byref(array))
    return math.isfinite(array.data[0].logit)


def verdict(vocab: object, grammar: str, text: str) -> bool:
    sampler = lib.llama_sampler_init_grammar(vocab, grammar.encode(), b"root")
    try:
        for token in tokens_of(vocab, text):
            if not allowed(sampler, token):
                return False
            lib.llama_sampler_accept(sampler, token)
        return allowed(sampler, lib.llama_vocab_eos(vocab))
    finally:
        lib.llama_sampler_free(sampler)


def main() -> None:
    lib.llama_backend_init()
    params = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(sys.argv[1].encode(), params)
    vocab = lib.llama_model_get_vocab(model)
    answers = []
    for grammar, texts in json.load(sys.stdin):
        sampler = lib.llama_sampler_init_grammar(vocab, grammar.encode(), b"root")
        if not sampler:
            answers.append(None)
            continue
        lib.llama_sampler_free(sampler)
        answers.append([verdict(vocab, grammar, text) for text in texts])
    json.dump(answers, sys.stdout)


main()
