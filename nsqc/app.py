"""The typer application: all commands but for the fast path to `serve` in cli.py."""

from __future__ import annotations

import typer

from nsqc.version import version_line

app = typer.Typer(name="nsqc", help="A drop-in nsqd.", no_args_is_help=True, add_completion=False,
                  pretty_exceptions_enable=False)


@app.command("serve", add_help_option=False, help="Run the daemon; it takes nsqd's flags (serve --help lists them).",
             context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def serve_command(context: typer.Context) -> None:
    from nsqc.serve import serve

    raise typer.Exit(serve(context.args))


@app.command("version", help="Print the version in nsqd's form.")
def version_command() -> None:
    print(version_line("nsqd"))
