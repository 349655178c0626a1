"""The engine: token ids, sequences and policy, in pure Python.

    ports         what it needs of the world (a backend, a sampler, a matcher, an output)
    sequence      one request's whole state
    prefix_tree   which slot holds which tokens
    slots         the backend's sequence ids: free, running, or kept for their prefix
    scheduler     which tokens the next decode computes
    engine        one step: plan, decode, choose, report
    worker        the thread that owns an engine
    output        tokens → text
    detokenizer   bytes → characters that may be shown
    events        what a request's owner hears

No ctypes and no text templates here: every test of the engine runs on a fake backend.
"""
