"""Find templates and fill them in."""

from __future__ import annotations

import os
import shlex
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import jinja2

from jobkit.core.errors import JobkitError
from jobkit.core.paths import config_folder, shipped_folder
from jobkit.schedulers.registry import SCHEDULERS


def fill(name: str, own: str | None, values: Mapping[str, object]) -> tuple[str, set[str]]:
    """Return a template with values in it, and the names of the templates that took part.

    Parameters
    ----------
    name
        The template.
    own
        The path of the spec's own template, which no folder is searched for.
    values
        The values that it may use; ``base`` is the shipped template of the scheduler.

    Raises
    ------
    JobkitError
        With the template and its line, if it has an error or uses an unknown value.
    """
    try:
        environment, used = _templates(own)
        return environment.get_template(name).render(values), used
    except RecursionError as error:
        hint = f'a template that stands in for a shipped one extends it as "shipped/{values["base"]}"'
        raise JobkitError(f"template {name}: extends itself", hint=hint) from error
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise JobkitError(
            f"template {_place(error) or name}: {_said(error)}",
            hint="jobkit help templates-and-sites lists the values that a template may use",
        ) from error


def find_template(name: str, base: Path) -> str:
    """Return the absolute path of a spec's own template.

    Parameters
    ----------
    name
        As the spec names it.
    base
        The spec's folder, which a relative path starts from.

    Raises
    ------
    JobkitError
        If there is no such file.
    """
    path = (base / os.path.expanduser(name)).absolute()  # noqa: PTH111 - a Path forgets the ./ of ./~
    if not path.is_file():
        raise JobkitError(f"there is no template {path}", hint="write one that says {% extends base %}")
    return str(path)


def _templates(own: str | None) -> tuple[jinja2.Environment, set[str]]:
    """Return the loader of templates, and the set to which it adds each template that it looks for.

    The spec's own is found by its path; then come the user's, then the shipped ones.
    """
    used: set[str] = set()

    def own_source(name: str) -> tuple[str, str, Callable[[], bool]] | None:
        used.add(name)
        if name != own:
            return None
        try:
            return Path(name).read_text(encoding="utf-8"), name, lambda: True
        except OSError as error:
            hint = "see `template` in the spec"
            raise JobkitError(f"template {name}: {error.strerror}", hint=hint) from error

    shipped = jinja2.FileSystemLoader(shipped_folder("templates"))
    loaders = [
        jinja2.FunctionLoader(own_source),
        jinja2.FileSystemLoader(config_folder() / "templates"),
        shipped,
        jinja2.PrefixLoader({"shipped": shipped}),
    ]
    environment = jinja2.Environment(  # noqa: S701 - shell, not HTML: every value goes through a quoting filter
        loader=jinja2.ChoiceLoader(loaders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update({name: scheduler.header_path for name, scheduler in SCHEDULERS.items()})
    environment.filters["q"] = shlex.quote
    return environment, used


def _said(error: Exception) -> str:
    if isinstance(error, jinja2.TemplateNotFound):
        return f"there is no template {error.name!r} to extend"
    return str(error)


def _place(error: Exception) -> str:
    """Return ``file:line`` of a template's error: from the error, else from its innermost frame."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"{error.filename or error.name}:{error.lineno}"
    frames = reversed(traceback.extract_tb(error.__traceback__))
    own = (frame for frame in frames if not frame.filename.endswith(".py") and frame.filename[:1] != "<")
    return next((f"{frame.filename}:{frame.lineno}" for frame in own), "")
