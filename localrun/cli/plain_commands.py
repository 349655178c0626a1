"""The slash commands of the line by line chat.

Knows what each command does to a conversation; knows neither the input loop nor signals. Invariant: every command of
`COMMANDS` that makes sense without a screen has a method `_do_NAME`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace

from localrun.chat.conversation import ChatSettings, Conversation, ConversationEvent, with_temperature
from localrun.chat.conversation.commands import COMMANDS, Command
from localrun.chat.conversation.files import path_of, read_attachment, read_constraint
from localrun.errors import UsageError
from localrun.responder import Responder
from localrun.store import Attachment, read_session_file, to_json, to_markdown, write_new_file


class PlainCommands(ABC):
    """What `PlainChat` can be told besides messages."""

    conversation: Conversation
    attachments: list[Attachment]
    open_model: Callable[[str], Responder]

    @abstractmethod
    def say(self, text: str) -> None:
        """A line to the person."""

    @abstractmethod
    def answer(self, events: Iterator[ConversationEvent]) -> None:
        """Show an answer, and let the person choose when the context is full."""

    @abstractmethod
    def stream(self, events: Iterator[ConversationEvent]) -> None:
        """Show what comes."""

    def _do_help(self, _command: Command) -> None:
        able = [command for command in COMMANDS if command.name == "quit" or hasattr(self, f"_do_{command.name}")]
        width = max(len(command.usage) for command in able)
        for command in able:
            self.say(f"{command.usage:{width}}  {command.explanation}")
        self.say('Several lines: begin with """ and end with """.')

    def _do_model(self, command: Command) -> None:
        if not command.argument:
            responder = self.conversation.responder
            self.say(responder.info.identity.name if responder is not None else "no model is loaded")
            return
        responder = self.open_model(command.argument)
        if self.conversation.responder is not None:
            self.conversation.responder.close()
        self.conversation.responder = responder
        self.say(f"(now {responder.info.identity.name})")

    def _change(self, settings: ChatSettings) -> None:
        self.conversation.change_settings(settings)

    def _do_system(self, command: Command) -> None:
        settings = self.conversation.settings
        if command.argument:
            self._change(replace(settings, system="" if command.argument == "-" else command.argument))
        self.say(self.conversation.settings.system or "(no system prompt)")

    def _do_grammar(self, command: Command) -> None:
        params = self.conversation.settings.params
        if command.argument:
            constraint = None if command.argument == "off" else read_constraint(command.argument)
            self._change(replace(self.conversation.settings, params=replace(params, constraint=constraint)))
        constraint = self.conversation.settings.params.constraint
        self.say(f"answers follow {constraint.name}" if constraint else "answers are free")

    def _do_temp(self, command: Command) -> None:
        self._change(with_temperature(self.conversation.settings, command.argument))
        self.say(f"temperature {self.conversation.settings.params.sampling.temperature:g}")

    def _do_file(self, command: Command) -> None:
        attachment = read_attachment(path_of(command.argument))
        self.attachments.append(attachment)
        self.say(f"({attachment.name} goes along with the next message)")

    def _do_regenerate(self, _command: Command) -> None:
        self.answer(self.conversation.regenerate())

    def _do_continue(self, _command: Command) -> None:
        self.answer(self.conversation.continue_answer())

    def _do_edit(self, command: Command) -> None:
        question = next((node for node in reversed(self.conversation.path) if node.kind == "user"), None)
        if question is None or not command.argument:
            raise UsageError("/edit TEXT says something else in place of your last message")
        self.answer(self.conversation.edit(question.id, command.argument))

    def _do_compact(self, _command: Command) -> None:
        self.stream(self.conversation.make_room("compact"))

    def _do_shift(self, _command: Command) -> None:
        self.stream(self.conversation.make_room("shift"))

    def _do_branch(self, _command: Command) -> None:
        self.stream(self.conversation.make_room("branch"))
        self.answer(self.conversation.answer())

    def _do_new(self, _command: Command) -> None:
        old = self.conversation
        self.conversation = Conversation(old.store, old.responder, old.settings)
        self.say("(a new chat)")

    def _do_sessions(self, _command: Command) -> None:
        for session in self.conversation.store.sessions(limit=20):
            self.say(f"{session.id}  {session.name or 'New chat'}")

    def _do_search(self, command: Command) -> None:
        hits = self.conversation.store.search(command.argument, limit=20)
        for hit in hits:
            place = f"{hit.session_id}:{hit.number}" if hit.number else hit.session_id
            self.say(f"{place}  {''.join(text for text, _ in hit.snippet)}")
        if not hits:
            self.say(f"nothing found for {command.argument!r}")

    def _do_rename(self, command: Command) -> None:
        self.conversation.store.rename(self._session_id(), command.argument)

    def _do_pin(self, _command: Command) -> None:
        session = self.conversation.store.session(self._session_id())
        self.conversation.store.pin(session.id, not session.pinned)
        self.say("unpinned" if session.pinned else "pinned")

    def _do_trash(self, command: Command) -> None:
        session_id = self._session_id()
        self.conversation.store.trash(session_id)
        self._do_new(command)
        self.say(f"(in the trash; `localrun sessions restore {session_id}` brings it back)")

    def _do_export(self, command: Command) -> None:
        session_id = self._session_id()
        tree = self.conversation.store.tree(session_id)
        name = command.argument or f"{session_id}.md"
        text = to_json(tree) if name.endswith(".json") else to_markdown(tree.session, self.conversation.path)
        write_new_file(path_of(name), text)
        self.say(f"(saved as {name})")

    def _do_import(self, command: Command) -> None:
        tree = read_session_file(path_of(command.argument))
        session = self.conversation.store.load(tree)
        old = self.conversation
        self.conversation = Conversation(old.store, old.responder, old.settings, session)
        self.say(f"({session.name}: {session.n_messages} messages)")

    def _session_id(self) -> str:
        session = self.conversation.session
        if session is None:
            raise UsageError("this chat has no message yet")
        return session.id
