"""All branches of a chat as a tree."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Tree as TreeWidget
from textual.widgets.tree import TreeNode

from localrun.chat.conversation.meter import visible
from localrun.store import Node, Tree

_NAMES = {"user": "you", "assistant": "answer", "summary": "summary", "shift": "shift"}


class BranchScreen(ModalScreen[int | None]):
    """Every message on a line; Enter goes there."""

    HELP = "What follows one of several versions stands below it. **Enter** goes to a message, **Esc** goes back."

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+t", "dismiss(None)", "Back")]

    DEFAULT_CSS = """
    BranchScreen { align: center middle; background: $background 60%; }
    BranchScreen > #dialog {
        width: 90; max-width: 96%; height: 80%;
        background: $surface; border: round $faint; padding: 1 2;
        border-title-color: $primary; border-subtitle-color: $muted;
    }
    BranchScreen Tree, BranchScreen Tree:focus {
        background: $surface; background-tint: transparent; scrollbar-size: 0 1;
    }
    """

    def __init__(self, tree: Tree, head_id: int | None) -> None:
        super().__init__()
        self._tree = tree
        self._path = {node.id for node in tree.path(head_id)}
        self._head_id = head_id

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as dialog:
            dialog.border_title = Content("Branches")
            dialog.border_subtitle = Content("Enter go there · Esc back")
            widget: TreeWidget[int] = TreeWidget("root")
            widget.show_root = False
            widget.guide_depth = 2
            yield widget

    def on_mount(self) -> None:
        widget = self.query_one(TreeWidget)
        here: TreeNode[int] | None = None
        waiting: list[tuple[Node, TreeNode[int]]] = [
            (node, widget.root) for node in reversed(self._tree.children(None))
        ]
        while waiting:
            node, parent = waiting.pop()
            is_version = len(self._tree.siblings(node.id)) > 1
            added = parent.add(self._label(node), data=node.id, expand=True, allow_expand=False)
            if node.id == self._head_id:
                here = added
            # What follows one of several versions stands below it; a lone reply stays at its level.
            level = added if is_version else parent
            waiting.extend((child, level) for child in reversed(self._tree.children(node.id)))
        widget.focus()
        if here is not None:
            self.call_after_refresh(widget.move_cursor, here)

    def _label(self, node: Node) -> Text:
        text = " ".join(visible(node.text).split())[:70]
        mark, style = ("●", "bold") if node.id in self._path else (" ", "dim")
        return Text(f"{mark} {node.number:>3} {_NAMES[node.kind]:8}{text}", style=style, no_wrap=True)

    def on_tree_node_selected(self, event: TreeWidget.NodeSelected[int]) -> None:
        event.stop()
        if event.node.data is not None:
            self.dismiss(event.node.data)
