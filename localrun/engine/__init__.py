"""The engine: token ids, sequences and policy, in pure Python.

    ports         what it needs of the world (a backend, a sampler, a matcher, an output)
    sequence      one request's whole state
    prefix_tree   which slot holds which tokens
    slots         the backend's sequence ids: free, running, or kept for their prefix
    scheduler     which tokens the next decode computes
    engine        one step: plan, decode, choose, report
    choosing      a row of logits → the tokens a sequence goes on with
    guessing      guessed tokens in a step; speculative: who guesses, and when it pays
    kv_store      blocks of the memory on disk; disk_prefix: when they are read and written
    threads       how many threads the next decode uses
    overflow      what happens when the context is full
    worker        the thread that owns an engine
    output        tokens → text
    detokenizer   bytes → characters that may be shown
    events        what a request's owner hears

No ctypes and no text templates here: every test of the engine runs on a fake backend.
"""
