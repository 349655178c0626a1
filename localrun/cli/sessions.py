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
    from localrun.store import Hit, Node, Session, Store, Tree

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
    with _store_to_read() as store:
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
    with _store_to_read() as store:
        hits = store.search(" ".join(words), limit=limit)
    if as_json:
        _json_lines([asdict(hit) for hit in hits])
    else:
        for line in _hit_lines(hits):
            typer.echo(line)
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

    with _store_to_read() as store:
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

    with _store_to_read() as store:
        found = store.tree(store.resolve(session).id)
    whole = as_json or (output is not None and output.suffix == ".json")
    text = to_json(found) if whole else to_markdown(found.session, found.head_path)
    if output is None:
        typer.echo(text, nl=False)
    else:
        from localrun.chat.conversation.files import path_of

        path = path_of(str(output))
        write_new_file(path, text)
        count = len(found.nodes) if whole else len(found.head_path)
        _remark(f"wrote {path}", found.session, f"{count} message{'' if count == 1 else 's'}")


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
    if forever:
        _each(sessions, lambda store: store.delete, "deleted for good")
    else:
        _each(sessions, lambda store: store.trash, "moved to the trash", "`localrun sessions restore {id}` undoes it")


def restore(sessions: Ids) -> None:
    """Bring chats back from the trash."""
    _each(sessions, lambda store: store.restore, "brought back")


def rename(session: Id, name: Annotated[str, typer.Argument(help="The new name.")]) -> None:
    """Give a chat a name."""
    with _store() as store:
        found = store.resolve(session)
        store.rename(found.id, name)
        _remark("renamed", store.session(found.id))


def pin(session: Id, off: Annotated[bool, typer.Option("--off", help="Let it go again.")] = False) -> None:
    """Keep a chat at the top of the list."""
    with _store() as store:
        found = store.resolve(session)
        store.pin(found.id, not off)
        _remark("unpinned" if off else "pinned", found)


def check() -> None:
    """Check the file that holds the chats. Ends with 1 if something is wrong."""
    with _store() as store:
        problems = store.check()
        typer.echo(f"{store.path}: {'damaged' if problems else 'sound'}")
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(1)


@contextmanager
def _store() -> Iterator[Store]:
    from localrun.store import Store

    store = Store.open()
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _store_to_read() -> Iterator[Store]:
    """The store, to look at it only: nothing is created where there is none."""
    from localrun.store import Store

    store = Store.open_to_read()
    try:
        yield store
    finally:
        store.close()


def _each(names: list[str], action: Callable[[Store], Callable[[str], None]], done: str, more: str = "") -> None:
    """Do something to each session and say so; all names are understood before anything is done."""
    with _store() as store:
        if any(name == "last" for name in names) and len(names) > 1:
            raise UsageError("`last` stands beside other ids", hint="name each chat by its id")
        for session in [store.resolve(name) for name in names]:
            action(store)(session.id)
            _remark(done, session, more.format(id=session.id))


def _remark(done: str, session: Session, more: str = "") -> None:
    """What was done to which chat, on stderr."""
    name = _printable(session.name or "New chat")[:_NAME_WIDTH]
    typer.echo(f"{done}: {session.id}  {name}{f' ({more})' if more else ''}", err=True)


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


def _hit_lines(hits: list[Hit]) -> Iterator[str]:
    """Where to go on, and what was found there; the name of a chat stands once, above what was found in it."""
    above: str | None = None
    for hit in hits:
        found = "".join(_marked(text, is_match) for text, is_match in hit.snippet)
        place = f"{f'{hit.session_id}:{hit.number}' if hit.number else hit.session_id:<11} "
        if hit.number and hit.session_id != above:
            yield place + (_printable(hit.session_name)[:_NAME_WIDTH] or "New chat")
            place = " " * len(place)
        yield place + found
        above = hit.session_id


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


commands: dict[str, Callable[..., None]] = {
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
"""The group's commands by name."""
