"""Widgets: each posts small messages and knows no engine, no store and no screen."""
