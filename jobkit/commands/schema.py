"""``jobkit schema``: the JSON schema of specs, for editors."""

from __future__ import annotations

import click

from jobkit.core import terminal


@click.command("schema", short_help="Print the JSON schema of specs.")
def schema() -> int:
    """Print the JSON schema of specs, with which an editor checks and completes a spec.

    \b
      jobkit schema > jobkit.schema.json

    Then write this as the first line of a spec in the same folder:

    \b
      # yaml-language-server: $schema=jobkit.schema.json
    """
    from jobkit.spec.sweep_spec import schema_text

    terminal.say(schema_text(), nl=False)
    return 0
