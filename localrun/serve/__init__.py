"""`localrun serve`: OpenAI's API on the local engine (extra `serve`).

server        sockets, signals, the end            app           routes and admission
guard         hosts, origins, keys, sizes          asking        a request → what the engine is asked
fields        JSON → checked values                …_fields      messages, tools and parameters in it
answering     one response on its way; clients that go away
turn          one choice, step by step             calling       the steps of one tool call
tool_form     how models write calls               tool_probe    that form, found by asking a chat template
tool_arguments  what may be written for each parameter      marked_text  where a template's texts may be cut
relay         the engine's thread → the loop       pool          models loaded on demand, unloaded when room is needed
shapes        answers in OpenAI's JSON             failures      errors in OpenAI's words
embeddings    texts → vectors
metrics       figures for Prometheus               openapi       the description of the API
local_models  files on this machine as something to serve
"""
