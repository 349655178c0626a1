"""What the slash commands do on the full screen.

Knows commands and screens. Invariant: every command of `COMMANDS` has a method here; one that misses an argument asks
for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from localrun.chat.conversation import ChatSettings, Conversation
from localrun.chat.conversation.commands import Command
from localrun.chat.conversation.files import grammar_files, grammar_name, path_of, read_attachment, read_constraint
from localrun.errors import LocalrunError, UsageError
from localrun.store import read_session_file, to_json, to_markdown, write_new_file
from localrun.tui.screens.branches import BranchScreen
from localrun.tui.screens.pick import Choice, PickScreen
from localrun.tui.screens.search import SearchScreen
from localrun.tui.screens.settings import SettingsScreen
from localrun.tui.screens.write import WriteScreen

if TYPE_CHECKING:
    from localrun.tui.app import ChatApp

_FREE = "off"


class CommandRunner:
    """Carries out the commands of the user on an application."""

    def __init__(self, app: ChatApp, cwd: Path) -> None:
        self._app = app
        self._cwd = cwd

    async def run(self, command: Command) -> None:
        """Raises `LocalrunError` when the command cannot be carried out; nothing has changed then."""
        await getattr(self, f"_do_{command.name}")(command.argument)

    def _telling(self, action: Callable[..., None], *arguments: str) -> None:
        """Do something after a screen has closed; an error is told."""
        try:
            action(*arguments)
        except LocalrunError as error:
            self._app.show_error(error)

    @property
    def _conversation(self) -> Conversation:
        return self._app.conversation

    def _session_id(self) -> str:
        session = self._conversation.session
        if session is None:
            raise UsageError("this chat has no message yet")
        return session.id

    # Settings

    async def _do_model(self, name: str) -> None:
        if name:
            self._app.want_model(name)
        else:
            self._app.choose_model()

    async def _do_system(self, text: str) -> None:
        if text:
            self._set_system("" if text == "-" else text)
            return

        def written(text: str | None) -> None:
            if text is not None:
                self._set_system(text)

        screen = WriteScreen("System prompt", self._conversation.settings.system, multiline=True)
        self._app.push_screen(screen, written)

    def _set_system(self, text: str) -> None:
        self._app.chat.change_settings(replace(self._conversation.settings, system=text))
        self._app.notify("System prompt set" if text else "No system prompt", markup=False)

    async def _do_grammar(self, name: str) -> None:
        if name:
            self._set_grammar(name)
            return

        def chosen(name: str | None) -> None:
            if name is not None:
                self._telling(self._set_grammar, name)

        constraint = self._conversation.settings.params.constraint
        choices = [Choice(_FREE, "Free text", "No grammar: the model writes what it likes")]
        choices += [
            Choice(grammar_name(path), grammar_name(path), "JSON Schema" if path.suffix == ".json" else "Grammar")
            for path in grammar_files()
        ]
        current = _FREE if constraint is None else constraint.name
        self._app.push_screen(PickScreen("Answers follow", choices, current=current), chosen)

    def _set_grammar(self, name: str) -> None:
        constraint = None if name == _FREE else read_constraint(str(self._from_here(name)))
        settings = self._conversation.settings
        self._app.chat.change_settings(replace(settings, params=replace(settings.params, constraint=constraint)))

    def _from_here(self, name: str) -> Path | str:
        path = path_of(name, self._cwd)
        return path if os.path.isfile(path) else name

    async def _do_temp(self, written: str) -> None:
        self._app.change_temperature(written)

    async def _do_settings(self, _: str) -> None:
        def kept(settings: ChatSettings | None) -> None:
            if settings is not None:
                self._app.chat.change_settings(settings)

        self._app.push_screen(SettingsScreen(self._conversation.settings), kept)

    async def _do_theme(self, name: str) -> None:
        from localrun.tui.app import check_theme

        if name:
            self._app.theme = check_theme(self._app, name)
            return

        def chosen(name: str | None) -> None:
            if name is not None:
                self._app.theme = name

        choices = [Choice(name, name) for name in sorted(self._app.available_themes, key=_ours_first)]
        self._app.push_screen(PickScreen("Colours", choices, current=self._app.theme), chosen)

    # The conversation

    async def _do_file(self, name: str) -> None:
        if not name:
            raise UsageError("/file needs a path", hint="or write @ and choose")
        await self._app.chat.attach(read_attachment(path_of(name, self._cwd)))

    async def _do_regenerate(self, _: str) -> None:
        self._app.chat.action_regenerate()

    async def _do_continue(self, _: str) -> None:
        self._app.chat.action_continue()

    async def _do_edit(self, text: str) -> None:
        chat = self._app.chat
        await chat.action_edit_last()
        if text and chat.editing_id is not None:
            chat.prompt.text = text
            chat.prompt.action_submit()

    async def _do_branch(self, _: str) -> None:
        self._session_id()
        self._app.chat.make_room("branch")

    async def _do_compact(self, _: str) -> None:
        self._session_id()
        self._app.chat.make_room("compact")

    async def _do_shift(self, _: str) -> None:
        self._session_id()
        self._app.chat.make_room("shift")

    async def _do_tree(self, _: str) -> None:
        self._session_id()

        async def chosen(message_id: int | None) -> None:
            if message_id is not None:
                await self._app.chat.go_to(message_id)

        path = self._conversation.path
        head_id = path[-1].id if path else None
        self._app.push_screen(BranchScreen(self._conversation.tree, head_id), chosen)

    async def _do_copy(self, _: str) -> None:
        self._app.chat.copy_answer()

    # Sessions

    async def _do_new(self, _: str) -> None:
        old = self._conversation
        await self._app.open_conversation(Conversation(old.store, None, old.settings))

    async def _do_sessions(self, _: str) -> None:
        self._app.chat.action_focus_side()

    async def _do_search(self, words: str) -> None:
        self._app.push_screen(SearchScreen(self._conversation.store.search, words), self._app.open_session)

    async def _do_rename(self, name: str) -> None:
        session_id = self._session_id()
        if name:
            self._rename(session_id, name)
        else:
            self.ask_for_name(session_id)

    def ask_for_name(self, session_id: str) -> None:
        """Ask for a new name of a chat."""

        def written(name: str | None) -> None:
            if name is not None:
                self._telling(self._rename, session_id, name)

        name = self._conversation.store.session(session_id).name
        self._app.push_screen(WriteScreen("Name of the chat", name), written)

    def _rename(self, session_id: str, name: str) -> None:
        self._conversation.store.rename(session_id, name)
        self._app.chat.show_sessions()

    async def _do_pin(self, _: str) -> None:
        store = self._conversation.store
        session = store.session(self._session_id())
        store.pin(session.id, not session.pinned)
        self._app.chat.show_sessions()

    async def _do_trash(self, _: str) -> None:
        await self._app.trash(self._session_id())

    async def _do_export(self, name: str) -> None:
        session_id = self._session_id()
        path = path_of(name or f"{session_id}.md", self._cwd)
        tree = self._conversation.tree
        text = to_json(tree) if path.suffix == ".json" else to_markdown(tree.session, self._conversation.path)
        write_new_file(path, text)
        self._app.notify(f"Saved as {path}", markup=False)

    async def _do_import(self, name: str) -> None:
        if not name:
            raise UsageError("/import needs a file")
        store = self._conversation.store
        session = store.load(read_session_file(path_of(name, self._cwd)))
        await self._app.open_conversation(Conversation.open(store, None, session.id))

    async def _do_help(self, _: str) -> None:
        self._app.action_help()

    async def _do_quit(self, _: str) -> None:
        await self._app.action_leave()


def _ours_first(name: str) -> tuple[bool, str]:
    return not name.startswith("localrun"), name
