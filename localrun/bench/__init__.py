"""Measurement: how fast a model is here, where the time goes, and which settings are best.

speed     one model, one setting: tokens a second of prefill and decode, on the engine itself
tune      the best settings of a model on this machine
probe     requests through the product's own path, with the times that a user would see
suites    which figures belong to `quick`, `full` and `serve`
figures   results with their spread; files of them; what differs beyond the noise
charts    results in a terminal          html     results as a page of its own

Everything is measured with a warm-up, repeated, and told as a median with its spread.
"""
