"""The options that jobs share: --verbose for all, and where nsqd are for those that talk to them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from nsqc.spark import options
from nsqc.spark.jobs import checks, running

Verbose = Annotated[bool, typer.Option(
    "--verbose", help="show the traces of what goes wrong, and Spark's log (also NSQC_VERBOSE=1)",
    callback=running.be_verbose)]


@dataclass(frozen=True)
class Peers:
    """Which nsqd a job talks to. options: the data sources'; http: addresses that were given; create: topics and
    channels that are not there are made."""

    options: dict[str, str]
    http: tuple[str, ...]
    create: bool


def shared(
    nsqd: Annotated[str | None, typer.Option(
        help="nsqd's TCP address HOST:PORT, several divided by commas",
        callback=checks.reads(values.read_addresses))] = None,
    nsqlookupd: Annotated[str | None, typer.Option(
        help="instead: nsqlookupd's HTTP address HOST:PORT, several divided by commas",
        callback=checks.reads(values.read_addresses))] = None,
    http: Annotated[str | None, typer.Option(
        help="HTTP addresses of the nsqd; by default the port behind TCP's, or what nsqlookupd tells",
        callback=checks.reads(values.read_addresses))] = None,
    create: Annotated[bool, typer.Option(
        "--create", help="make a topic or channel that is not there, instead of failing")] = False,
    tls: Annotated[bool, typer.Option("--tls", help="TLS to all nsqd")] = False,
    tls_ca_file: Annotated[Path | None, typer.Option(
        help="who signed nsqd's certificate; by default the system's authorities", metavar="FILE")] = None,
    tls_cert_file: Annotated[Path | None, typer.Option(help="a certificate of one's own", metavar="FILE")] = None,
    tls_key_file: Annotated[Path | None, typer.Option(help="and its key", metavar="FILE")] = None,
    tls_verify: Annotated[bool, typer.Option(help="refuse an nsqd that nobody has signed")] = True,
    auth_secret: Annotated[str | None, typer.Option(
        help="for an nsqd that asks for one", envvar="NSQC_AUTH_SECRET", show_default=False)] = None,
) -> Peers:
    """The options of every job that talks to nsqd."""
    given = {key: text for key, text in (("nsqd", nsqd), ("nsqlookupd", nsqlookupd)) if text is not None}
    if len(given) != 1:
        raise typer.BadParameter("give one of --nsqd and --nsqlookupd")
    files = {"tlsCaFile": tls_ca_file, "tlsCertFile": tls_cert_file, "tlsKeyFile": tls_key_file}
    for path in filter(None, files.values()):
        if not path.is_file():
            raise typer.BadParameter(f"there is no file {path}")
    if not tls and (any(files.values()) or not tls_verify):
        raise typer.BadParameter("--tls-ca-file, --tls-cert-file, --tls-key-file and --no-tls-verify need --tls")
    if bool(tls_cert_file) != bool(tls_key_file):
        raise typer.BadParameter("--tls-cert-file and --tls-key-file go together")
    if tls:
        given |= {"tls": "true", "tlsVerify": str(tls_verify).lower()}
        given |= {key: str(path.absolute()) for key, path in files.items() if path}
    if auth_secret:
        given["authSecret"] = auth_secret
    return Peers(given, values.read_addresses(http) if http else (), create)


def peered(command: Callable[..., int]) -> Callable[..., int]:
    """A job with the shared options, which gets them as the argument peers."""
    names = inspect.signature(shared).parameters

    def call(**words: Any) -> int:
        return command(peers=shared(**{name: words.pop(name) for name in names}), **words)

    return adorned(call, command, inspect.signature(shared, eval_str=True), leave_out="peers")


def plain(command: Callable[..., int]) -> Callable[..., int]:
    """A job without nsqd."""
    return adorned(command, command, inspect.Signature())


def adorned(call: Callable[..., int], command: Callable[..., int], more: inspect.Signature,
            leave_out: str = "") -> Callable[..., int]:
    """call with the words of command and more, and --verbose, as typer reads them."""
    def run(**words: Any) -> int:
        words.pop("verbose")
        return call(**words)

    own = inspect.signature(command, eval_str=True)
    found = [one for one in own.parameters.values() if one.name != leave_out] + list(more.parameters.values())
    found.append(inspect.Parameter("verbose", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Verbose))
    run = wraps(command)(run)
    run.__annotations__ = {}
    run.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in found])
    return run
