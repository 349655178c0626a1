"""A text that stands to the right of its bullet, in all its lines."""

from __future__ import annotations

from textual.content import Content
from textual.css.styles import RulesMap
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual


class Hanging(Visual):
    """A text that stands to the right of its bullet in all its lines."""

    def __init__(self, bullet: Content, text: Content) -> None:
        self._bullet = bullet
        self._text = text

    def render_strips(self, width: int, height: int | None, style: Style, options: RenderOptions) -> list[Strip]:
        indent = self._bullet.cell_length
        first, blank = (
            content.render_strips(indent, 1, style, options)[0] for content in (self._bullet, Content(" " * indent))
        )
        lines = self._text.render_strips(max(width - indent, 1), height, style, options)
        return [Strip.join([blank if number else first, line]) for number, line in enumerate(lines)]

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return self._bullet.cell_length + self._text.get_optimal_width(rules, container_width)

    def get_height(self, rules: RulesMap, width: int) -> int:
        return self._text.get_height(rules, max(width - self._bullet.cell_length, 1))
