"""The process: signals, and the one place that turns errors into messages and exit codes.

Knows exit codes and streams; knows no command. Invariants: an error is one line `error: …` and at most one hint on
stderr (a grammar's hint shows the place, with a caret below it); a traceback is shown only with `--debug`; a reader
that closed the pipe hears nothing more.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import sys
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, NoReturn

from localrun.cli.signals import Terminated, end_on_signal, raise_on_signal, received_before
from localrun.errors import InterruptedByUserError, LocalrunError, OutputWriteError

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_OUT_OF_MEMORY = 4
EXIT_INTERRUPTED = 130

_IN_QUOTES = 'a text of several words is put in quotes: "like this"'
_EXTRA = {
    "generate": _IN_QUOTES,
    "tokenize": _IN_QUOTES,
    "chat": "it takes a model; what you want to say is written in the chat, or given to localrun generate",
}
"""What helps who gave a command more than it takes."""


def main(argv: list[str] | None = None) -> None:
    """Run the command line and end the process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = _take_flag(arguments, "--debug")
    has_stdout = _prepare_streams()
    end_on_signal()
    _prepare_logging(debug)
    code = run(arguments, debug=debug, before_command=raise_on_signal)
    if code == 0 and not has_stdout:
        _report("stdout is closed", None, debug=False)
        code = EXIT_FAILURE
    _leave(code)


def run(arguments: list[str], *, debug: bool = False, before_command: Callable[[], None] = lambda: None) -> int:
    """Run one command, and `before_command` when it is loaded; returns its exit code."""
    try:
        return _dispatch(arguments, before_command)
    except BrokenPipeError:
        return 0
    except Terminated as terminated:
        return terminated.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except InterruptedByUserError:
        return EXIT_INTERRUPTED
    except LocalrunError as error:
        _report(error.message, error.hint, debug)
        return error.exit_code
    except MemoryError:
        _report("out of memory", "take a smaller model, context or batch", debug)
        return EXIT_OUT_OF_MEMORY
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        _report(f"{name}{error.strerror or error}", None, debug)
        return EXIT_FAILURE
    except Exception as error:  # a bug: the user gets a line, the developer a traceback with --debug
        _report(f"{type(error).__name__}: {error}", "this is a bug; --debug shows where", debug)
        return EXIT_FAILURE


def _dispatch(arguments: list[str], before_command: Callable[[], None]) -> int:
    if arguments[:1] == ["--version"]:
        from localrun import __version__

        print(f"localrun {__version__}")  # noqa: T201
        return 0
    import typer

    from localrun.cli.app import ALIASES, COMMANDS, build

    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    if arguments and arguments[0] in ALIASES:
        arguments = [ALIASES[arguments[0]], *arguments[1:]]
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    completing = any(name.endswith("_COMPLETE") for name in os.environ)
    app = build(wanted if wanted in COMMANDS else None, everything=completing)
    before_command()
    try:
        code = app(args=arguments, standalone_mode=False, prog_name="localrun")
    except typer.Exit as exit_:
        return exit_.exit_code
    except typer.Abort:
        return EXIT_INTERRUPTED
    except typer.TyperException as error:
        return _usage_error(error, wanted if wanted in COMMANDS else None, _misplaced(arguments, COMMANDS))
    except SystemExit as exit_:
        # Typer turns a closed pipe into an exit with 1; for us it is no failure.
        if isinstance(exit_.__context__, BrokenPipeError):
            raise exit_.__context__ from None
        raise
    if code == EXIT_INTERRUPTED and received_before().number:
        return received_before().exit_code  # typer makes 130 of every signal
    return code if isinstance(code, int) else 0


def _misplaced(arguments: list[str], commands: Collection[str]) -> str | None:
    """The command line in its order, where a command's flags stand before the command."""
    place = next((number for number, argument in enumerate(arguments) if argument in commands), 0)
    if place == 0 or not arguments[0].startswith("-"):
        return None
    return shlex.join(["localrun", arguments[place], *arguments[:place], *arguments[place + 1 :]])


def _usage_error(error: Any, command: str | None, in_order: str | None) -> int:
    """Click's usage errors, in our form."""
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message, file=sys.stderr)  # noqa: T201
        return EXIT_USAGE
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    help_command = f"localrun {command} --help" if command else "localrun --help"
    text = " ".join(lines)
    first, _, suggestion = text.partition(" Did you mean ")
    hint = f"did you mean {suggestion}" if suggestion else f"{help_command} shows what there is"
    if in_order is not None:
        hint = f"flags come after the command: {in_order}"
    elif extra := re.search(r"unexpected extra arguments? ?(?:\(s\) )?\((.*)\)", text):
        first = f"{command or 'localrun'} takes no {extra[1]!r}"
        hint = _EXTRA.get(command or "", hint)
    _report((first[:1].lower() + first[1:]).rstrip("."), hint, debug=False)
    return int(getattr(error, "exit_code", EXIT_USAGE))


def _report(message: str, hint: str | None, debug: bool) -> None:
    if debug:
        import traceback

        traceback.print_exc()
    try:
        print(f"error: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201
        if hint:
            first, *place = hint.splitlines()  # after the first line: a line of the user's text and a caret under it
            print("\n".join([f"hint: {' '.join(first.split())}", *place]), file=sys.stderr)  # noqa: T201
    except OSError:
        return  # stderr is closed or full: there is nobody left to tell


def _take_flag(arguments: list[str], flag: str) -> bool:
    """Remove `flag` from the arguments before `--`; whether it was there."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if flag not in arguments[:end]:
        return False
    arguments.remove(flag)
    return True


def _prepare_streams() -> bool:
    """Streams that were closed become /dev/null, and none fails on a character the locale does not have.

    Whether there is a stdout.
    """
    has_stdout = sys.stdout is not None
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    return has_stdout


def _prepare_logging(debug: bool) -> None:
    import logging

    if debug:
        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s", stream=sys.stderr)
    else:
        logging.getLogger("localrun").addHandler(logging.NullHandler())
        logging.getLogger("localrun").propagate = False


def _leave(code: int) -> NoReturn:
    """Flush and end. A full disk shows here too; a closed pipe does not."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _point_at_null(sys.stdout)
    except OSError as error:
        if code == 0:  # otherwise why it failed has been told, most likely this
            failure = OutputWriteError.of("the output", error)
            _report(failure.message, failure.hint, debug=False)
        _point_at_null(sys.stdout)
        code = code or EXIT_FAILURE
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.exit(code)
    # Taking the interpreter and the engine apart frees what the system frees anyway, and takes 10 ms.
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


def _point_at_null(stream: Any) -> None:
    """Keep the interpreter from flushing the same bytes again, and complaining, when it ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
