"""A group of commands that suggests similar ones. `--help` imports it, so it reads no settings."""

from __future__ import annotations

import click

from triggers.cli.output import printable


class Suggesting(click.Group):
    """A group that suggests similar commands for a mistyped one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            import difflib  # imported late: few names are mistyped

            near = difflib.get_close_matches(name, self.list_commands(ctx), n=3)
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"there is no command {printable(name)!r}{meant}", ctx)
        return super().resolve_command(ctx, args)
