"""Screens: each wires widgets to what it shows."""
