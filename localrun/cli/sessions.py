"""`localrun sessions`: find, read, take along and throw away what was said.

Knows flags and columns; the store does the work. Invariant: stdout holds what was asked for; remarks go to stderr.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localrun.errors import UsageError

if TYPE_CHECKING:
    from localrun.store import Node, Session, Store, Tree

_DAY_S = 86_400
_NAME_WIDTH = 48

Id = Annotated[str, typer.Argument(metavar="ID", help="A chat's id, its beginning, or `last`.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of chats, or their beginnings.")]
Json = Annotated[bool, typer.Option("--json", help="As JSON, one object a line.")]


def ls(
    trash: Annotated[bool, typer.Option("--trash", help="What is in the trash.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most so many.")] = None,
    as_json: Json = False,
) -> None:
    """List the chats, pinned ones first, then the latest."""
    with _store() as store:
        sessions = store.sessions(trashed=trash, limit=limit)
    if as_json:
        _json_lines([_facts(session) for session in sessions])
        return
    if not sessions:
        typer.echo("the trash is empty" if trash else "no chats yet: start one with `localrun chat`", err=True)
    for session in sessions:
        pin = "*" if session.pinned else " "
        count = f"{session.n_messages:>4}"
        typer.echo(f"{session.id} {pin} {_when(session.touched_at):>12} {count}  {session.name or 'New chat'}")


def search(
    words: Annotated[list[str], typer.Argument(metavar="WORDS…", help='All must occur; "…" holds a phrase together.')],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 50,
    as_json: Json = False,
) -> None:
    """Search in all chats. Ends with 1 if nothing is found."""
    with _store() as store:
        hits = store.search(" ".join(words), limit=limit)
    if as_json:
        _json_lines([asdict(hit) for hit in hits])
    else:
        for hit in hits:
            place = f"{hit.session_id}:{hit.number}" if hit.number else hit.session_id
            typer.echo(f"{place:<11} {_printable(hit.session_name)[:_NAME_WIDTH]}")
            typer.echo("            " + "".join(_marked(text, found) for text, found in hit.snippet))
    if not hits:
        typer.echo(f"nothing found for {' '.join(words)!r}", err=True)
        raise typer.Exit(1)


def show(
    session: Id,
    tree: Annotated[bool, typer.Option("--tree", help="All branches, a line for each message.")] = False,
    as_json: Json = False,
) -> None:
    """Show a chat: the branch that was looked at last, or all of them."""
    from localrun.store import to_json, to_markdown

    with _store() as store:
        found = store.tree(store.resolve(session).id)
    if as_json:
        typer.echo(to_json(found), nl=False)
    elif tree:
        for line in tree_lines(found):
            typer.echo(line)
    else:
        typer.echo(_safe(to_markdown(found.session, found.head_path)), nl=False)


def export(
    session: Id,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file: .json for all branches, else Markdown.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All branches, as JSON.")] = False,
) -> None:
    """Write a chat as Markdown (one branch) or JSON (everything), to a new file or to stdout."""
    from localrun.store import to_json, to_markdown, write_new_file

    with _store() as store:
        found = store.tree(store.resolve(session).id)
    whole = as_json or (output is not None and output.suffix == ".json")
    text = to_json(found) if whole else to_markdown(found.session, found.head_path)
    if output is None:
        typer.echo(text, nl=False)
    else:
        from localrun.chat.conversation.files import path_of

        write_new_file(path_of(str(output)), text)


def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="JSON or Markdown transcripts.")],
) -> None:
    """Read chats from files; each gets a new id, which is printed."""
    from localrun.chat.conversation.files import path_of
    from localrun.store import read_session_file

    trees = [read_session_file(path_of(str(path))) for path in files]  # all are read before one is stored
    with _store() as store:
        for tree in trees:
            typer.echo(store.load(tree).id)


def rm(
    sessions: Ids,
    forever: Annotated[bool, typer.Option("--forever", help="Delete for good instead of moving to the trash.")] = False,
) -> None:
    """Move chats to the trash (`restore` brings them back), or delete them for good."""
    _each(sessions, lambda store: store.delete if forever else store.trash)


def restore(sessions: Ids) -> None:
    """Bring chats back from the trash."""
    _each(sessions, lambda store: store.restore)


def rename(session: Id, name: Annotated[str, typer.Argument(help="The new name.")]) -> None:
    """Give a chat a name."""
    with _store() as store:
        store.rename(store.resolve(session).id, name)


def pin(session: Id, off: Annotated[bool, typer.Option("--off", help="Let it go again.")] = False) -> None:
    """Keep a chat at the top of the list."""
    with _store() as store:
        store.pin(store.resolve(session).id, not off)


def check() -> None:
    """Check the file that holds the chats. Ends with 1 if something is wrong."""
    with _store() as store:
        problems = store.check()
        typer.echo(f"{store.path}: {'damaged' if problems else 'sound'}")
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(1)


COMMANDS: dict[str, Callable[..., None]] = {
    "ls": ls,
    "search": search,
    "show": show,
    "export": export,
    "import": import_,
    "rm": rm,
    "restore": restore,
    "rename": rename,
    "pin": pin,
    "check": check,
}


@contextmanager
def _store() -> Iterator[Store]:
    from localrun.store import Store

    store = Store.open()
    try:
        yield store
    finally:
        store.close()


def _each(names: list[str], action: Callable[[Store], Callable[[str], None]]) -> None:
    """Do something to each session; all names are understood before anything is done."""
    with _store() as store:
        if any(name == "last" for name in names) and len(names) > 1:
            raise UsageError("`last` stands beside other ids", hint="name each chat by its id")
        for session in [store.resolve(name) for name in names]:
            action(store)(session.id)


def _facts(session: Session) -> dict[str, object]:
    facts = asdict(session)
    del facts["settings"], facts["head_id"], facts["named_by"]
    return facts


def _json_lines(objects: list[dict[str, object]]) -> None:
    for fields in objects:
        typer.echo(json.dumps(fields, ensure_ascii=False))


def _when(timestamp: float) -> str:
    then = datetime.fromtimestamp(timestamp)
    if time.time() - timestamp < _DAY_S:
        return then.strftime("%H:%M")
    return then.strftime("%Y-%m-%d")


def tree_lines(tree: Tree) -> Iterator[str]:
    """A line for each message; what follows a version stands indented below it, `>` marks where the user is."""
    here = {node.id for node in tree.head_path}
    waiting: list[tuple[Node, int]] = [(node, 0) for node in reversed(tree.children(None))]
    while waiting:
        node, depth = waiting.pop()
        mark = ">" if node.id in here else " "
        text = _printable(node.text)[:60]
        yield f"{mark} {node.number:>3} {'  ' * depth}{node.kind}: {text}"
        # What follows one of several versions stands below it; a lone reply stays at its level.
        below = depth + (len(tree.siblings(node.id)) > 1)
        waiting.extend((child, below) for child in reversed(tree.children(node.id)))


def _printable(text: str) -> str:
    from localrun.chat.conversation.meter import visible

    return " ".join(visible(text).split())


def _safe(text: str) -> str:
    """For a terminal, without what would drive it; for a file or a pipe, as it is."""
    from localrun.chat.conversation.meter import visible

    return visible(text) if sys.stdout.isatty() else text


def _marked(text: str, found: bool) -> str:
    if found and sys.stdout.isatty():
        return typer.style(_safe(text), bold=True)
    return _safe(text)


commands = {
    "ls": ls,
    "search": search,
    "show": show,
    "export": export,
    "import": import_,
    "rm": rm,
    "restore": restore,
    "rename": rename,
    "pin": pin,
    "check": check,
}
