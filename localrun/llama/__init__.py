"""The border to llama.cpp: the only package that imports `llama_cpp`.

    library     loads the shared library, routes its log, says what it can do
    model       a loaded model file
    vocabulary  bytes ↔ token ids
    batch       rows for one decode
    context     decoding and the KV memory (the engine's `Backend`)
    sampler     the C sampler chain
    state       saving and restoring the KV of a sequence

Everything here owns its C pointers, closes once however often it is asked, checks arguments before C sees them, and
turns return codes into `localrun.errors`. One thread uses it at a time, except `vocabulary`, which only reads.
"""
