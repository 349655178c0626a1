"""The two themes: colours with names, nothing else.

Few colours on purpose: one for what is yours (primary), one for what needs a look (warning), and steps of grey.
Contrast of text on its background is at least 7:1, of muted text at least 4.5:1 (WCAG AAA and AA).
"""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="localrun-dark",
    dark=True,
    primary="#7aa8f0",
    secondary="#8fb8a0",
    accent="#c7a6f2",
    warning="#e6b45c",
    error="#ef7d7d",
    success="#8cc99a",
    foreground="#d9dce3",
    background="#15171c",
    surface="#1a1d23",
    panel="#23272f",
    variables={
        "footer-key-foreground": "#7aa8f0",
        "input-selection-background": "#7aa8f0 35%",
        "scrollbar": "#2d323c",
        "scrollbar-hover": "#3b414d",
        "scrollbar-active": "#4b5261",
        "scrollbar-background": "#15171c",
        "scrollbar-background-hover": "#15171c",
        "scrollbar-background-active": "#15171c",
        "muted": "#8b92a0",
        "faint": "#3a404b",
    },
)

LIGHT = Theme(
    name="localrun-light",
    dark=False,
    primary="#2b5fb0",
    secondary="#2f6d4f",
    accent="#7440b8",
    warning="#8f5a00",
    error="#b3261e",
    success="#2c6e3f",
    foreground="#24272d",
    background="#fbfaf8",
    surface="#f4f2ee",
    panel="#e9e6e0",
    variables={
        "footer-key-foreground": "#2b5fb0",
        "input-selection-background": "#2b5fb0 25%",
        "scrollbar": "#d5d1c9",
        "scrollbar-hover": "#c3beb4",
        "scrollbar-active": "#b0aa9e",
        "scrollbar-background": "#fbfaf8",
        "scrollbar-background-hover": "#fbfaf8",
        "scrollbar-background-active": "#fbfaf8",
        "muted": "#666b75",
        "faint": "#cfcbc3",
    },
)

THEMES = (DARK, LIGHT)
