"""The command line: `nsqc serve`, `nsqc version`. Called by the name nsqd, it is `nsqc serve`."""

from __future__ import annotations

import sys
from pathlib import Path

from nsqc.version import version_line

VERSION_FLAGS = ("--version", "-version")


def main() -> None:
    """The entry point of the executable."""
    words = sys.argv[1:]
    if Path(sys.argv[0]).name == "nsqd":
        sys.exit(serve(words))
    if words[:1] == ["serve"]:
        # Past typer, whose import would take most of the daemon's start: these flags have nsqd's grammar anyway.
        sys.exit(serve(words[1:]))
    if words and words[0] in VERSION_FLAGS:
        print(version_line("nsqd"))
        sys.exit(0)
    application()()


def serve(words: list[str]) -> int:
    """Runs the daemon."""
    from nsqc.serve import serve as run

    return run(words)


def application():
    """The typer application with all commands."""
    import typer

    app = typer.Typer(name="nsqc", help="A drop-in nsqd.", no_args_is_help=True, add_completion=False)

    @app.command("serve", add_help_option=False, help="Run the daemon; it takes nsqd's flags (serve --help lists them).",
                 context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    def serve_command(context: typer.Context) -> None:
        raise typer.Exit(serve(context.args))

    @app.command("version", help="Print the version in nsqd's form.")
    def version_command() -> None:
        print(version_line("nsqd"))

    return app
