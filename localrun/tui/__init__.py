"""The full-screen chat.

app        the application: themes, commands, loading of models
screens/   one screen a file; they wire widgets to the conversation and know nothing else
widgets/   one widget a file; they post small messages and know no engine
bridge     the thread that talks to the model, and the queue between it and the screen
ports      what the application needs of the world
"""
