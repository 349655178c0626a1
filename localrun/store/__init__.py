"""Sessions on disk: every conversation as a tree of messages, saved while it happens, searchable, exportable."""

from localrun.store.export import from_json, from_markdown, to_json, to_markdown
from localrun.store.files import read_session_file, write_new_file
from localrun.store.records import CRASHED, GIVEN, Attachment, Facts, Hit, Kind, Node, Segment, Session, Tree
from localrun.store.store import Store
from localrun.store.writer import AnswerWriter

__all__ = [
    "CRASHED",
    "GIVEN",
    "AnswerWriter",
    "Attachment",
    "Facts",
    "Hit",
    "Kind",
    "Node",
    "Segment",
    "Session",
    "Store",
    "Tree",
    "from_json",
    "from_markdown",
    "read_session_file",
    "to_json",
    "to_markdown",
    "write_new_file",
]
