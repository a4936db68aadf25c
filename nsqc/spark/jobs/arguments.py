"""Arguments shared by jobs: the topic, a range of time, an archive, and the nsqd to use."""

from __future__ import annotations

import glob
import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from nsqc import paths
from nsqc.spark import values
from nsqc.spark.jobs import nsqd_http, running
from nsqc.spark.values import read_name

# ====================================================================== checks
# Checks of arguments before Spark starts: names, files, times.
#
# All raise typer.BadParameter, which ends a job with one line and exit code 2.

T = TypeVar("T")


def reads(read: Callable[[str], object]) -> Callable[[T], T]:
    """A typer callback that checks a text, or each of a list, by a reader of nsqc.spark.values and returns it."""
    def callback(given: T) -> T:
        for text in given if isinstance(given, list) else [given]:
            if isinstance(text, str):
                try:
                    read(text)
                except ValueError as error:
                    raise typer.BadParameter(f"{text}: {error}") from None
        return given
    return callback


def path(text: str | Path) -> Path:
    """The typer parser of a local path. spark-submit may start the driver in a temporary folder, which is removed when
    the job ends."""
    try:
        return Path((paths.absolute if "PYSPARK_GATEWAY_PORT" in os.environ else paths.local)(str(text)))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def place(text: str) -> str:
    """The typer parser of a folder in any file system: a URI, which Spark checks, or an absolute local path."""
    return text if paths.is_foreign(text) else str(path(text).absolute())


def inputs(texts: list[str]) -> list[str]:
    """A typer callback: URIs, which Spark checks, and local paths: files, folders with files, or patterns with
    matches."""
    return [text if paths.is_foreign(text) else str(readable(path(text))) for text in texts]


def readable(path: Path) -> Path:
    """A file, a folder with files, or a pattern with matches."""
    if not path.exists() and not glob.glob(str(path)):
        raise typer.BadParameter(f"no such file or folder: {path}")
    try:
        if path.is_dir() and not any(entry.name[0] not in "._" for entry in path.iterdir()):
            raise typer.BadParameter(f"no files in {path}")
        if path.is_file():
            path.open("rb").close()
    except OSError as error:
        raise typer.BadParameter(f"{path} is not readable: {error.strerror}") from None
    return path


def folder(path: Path) -> Path:
    """An existing folder."""
    if fault := paths.folder_fault(str(path)):
        raise typer.BadParameter(fault)
    return path


def writable(path: Path | None) -> Path | None:
    """A file in an existing folder, or none."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise typer.BadParameter(f"{path} is not a file in an existing folder")
    return path


def archive(path: Path) -> Path:
    """A folder written by the archive job."""
    if not (folder(path) / "_ledger.json").is_file():
        raise typer.BadParameter(f"{path} is not an archive: it has no _ledger.json")
    return path


def archive_or_none(text: str | None) -> str | None:
    """The same, of a path from place(); URIs are checked by Spark."""
    if text is not None and not paths.is_foreign(text):
        archive(Path(text))
    return text


def moment(text: str | None) -> str | None:
    """A time that micros() can read, or none."""
    if text is not None:
        micros(text)
    return text


def micros(text: str) -> int:
    """Microseconds since 1970 of a date or time in ISO 8601, in UTC unless it names another zone."""
    from nsqc.spark.jobs.ledger import micros as since_1970

    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text} is not a time such as 2026-11-21, 2026-11-21T13:00 or "
                                 "2026-11-21T13:00:00+02:00") from None
    return since_1970(time if time.tzinfo else time.replace(tzinfo=UTC))


def micros_range(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    """The range of --from and --to in microseconds since 1970; None: unbounded."""
    return (micros(since) if since else None), (micros(until) if until else None)


def finite(number: float | None) -> float | None:
    """A typer callback: the limits of an option do not exclude nan."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not a finite number")
    return number


def topic(name: str | None) -> str | None:
    """A topic name, or none."""
    return reads(read_name)(name)


# ====================================================================== arguments

Topic = Annotated[str, typer.Option(help="the topic", callback=topic)]
Topics = Annotated[str | None, typer.Option(
    help="log-backed topics, separated by commas", callback=reads(values.read_names))]
Rate = Annotated[float | None, typer.Option(
    help="maximum messages per second, over all tasks", min=0.001, callback=finite)]
Every = Annotated[float, typer.Option(
    help="seconds between batches, without --until-idle", min=0.1, max=10_000_000, callback=finite)]
Archive = Annotated[Path, typer.Argument(help="the archive", metavar="FOLDER", parser=path,
                                         callback=archive)]
Since = Annotated[str | None, typer.Option(
    "--from", help="omit messages published before this time (ISO 8601, UTC)", callback=moment)]
Until = Annotated[str | None, typer.Option(
    "--to", help="omit messages published at this time or later", callback=moment)]
Verbose = Annotated[bool, typer.Option(
    "--verbose", help="show stack traces of errors, and Spark's log (also NSQC_VERBOSE=1)",
    callback=running.be_verbose)]


Nsqd = Annotated[str | None, typer.Option(
    help="nsqd's TCP address HOST:PORT, several separated by commas", callback=reads(values.read_addresses))]
Nsqlookupd = Annotated[str | None, typer.Option(
    help="instead: nsqlookupd's HTTP address HOST:PORT, several separated by commas",
    callback=reads(values.read_addresses))]
Tls = Annotated[bool, typer.Option("--tls", help="use TLS with all nsqd")]
TlsCaFile = Annotated[Path | None, typer.Option(
    help="the authority of nsqd's certificate; default: the system's authorities", metavar="FILE",
    parser=path)]
TlsCertFile = Annotated[Path | None, typer.Option(help="the client's certificate", metavar="FILE", parser=path)]
TlsKeyFile = Annotated[Path | None, typer.Option(help="the key of the certificate", metavar="FILE", parser=path)]
AuthSecret = Annotated[str | None, typer.Option(
    help="secret for AUTH, if an nsqd requires it", envvar="NSQC_AUTH_SECRET", show_default=False)]
NodeAddresses = Annotated[str | None, typer.Option(
    help="hosts, networks such as 10.0.0.0/8, or globs, of nodes found by nsqlookupd that get the secret. Default: "
    "over HTTP none, over TCP all", metavar="HOSTS", callback=reads(values.read_hosts))]
TlsVerify = Annotated[bool, typer.Option(help="refuse an nsqd without a valid certificate")]


@dataclass(frozen=True)
class Cluster:
    """The nsqd of a job. options: for the data sources; http: given HTTP addresses; create: whether to create
    missing topics and channels."""

    options: dict[str, str]
    http: tuple[str, ...]
    create: bool

    @property
    def secret(self) -> nsqd_http.Secret:
        """For the HTTP API of nsqd."""
        return nsqd_http.secret_in(self.options, names_nodes=bool(self.http))


def read_cluster(
    nsqd: Nsqd = None,
    nsqlookupd: Nsqlookupd = None,
    http: Annotated[str | None, typer.Option(
        help="HTTP addresses of the nsqd; default: the port after TCP's, or as reported by nsqlookupd",
        callback=reads(values.read_addresses))] = None,
    create: Annotated[bool, typer.Option(
        "--create", help="create a missing topic or channel instead of failing")] = False,
    tls: Tls = False,
    tls_ca_file: TlsCaFile = None,
    tls_cert_file: TlsCertFile = None,
    tls_key_file: TlsKeyFile = None,
    tls_verify: TlsVerify = True,
    auth_secret: AuthSecret = None,
    node_addresses: NodeAddresses = None,
) -> Cluster:
    """The cluster of a job, from its options."""
    given = addresses_and_tls(nsqd, nsqlookupd, tls, tls_ca_file, tls_cert_file, tls_key_file, tls_verify)
    if auth_secret:
        given["authSecret"] = auth_secret
    if node_addresses:
        given["nodeAddresses"] = node_addresses
    return Cluster(given, values.read_addresses(http) if http else (), create)


def read_nodes(
    http: Annotated[str | None, typer.Option(
        help="HTTP addresses of the nsqd, in the order of --nsqd; HTTPS addresses with --tls. Default: the port after "
        "TCP's (with --tls the one after that), or as reported by nsqlookupd",
        callback=reads(values.read_addresses))] = None,
    **others: Any,      # Any: typer has read them
) -> Cluster | None:
    """The cluster of a job that uses only its HTTP API; None if no option gives one. others: those of read_cluster."""
    if not any(given for name, given in (*others.items(), ("http", http)) if name not in ("auth_secret", "tls_verify")
               ) and others["tls_verify"]:
        return None
    return read_cluster(http=http, **others)


def addresses_and_tls(nsqd: str | None, nsqlookupd: str | None, tls: bool, ca_file: Path | None,
                      cert_file: Path | None, key_file: Path | None, verify: bool) -> dict[str, str]:
    """The same as options of the data sources."""
    given = {key: text for key, text in (("nsqd", nsqd), ("nsqlookupd", nsqlookupd)) if text is not None}
    if len(given) != 1:
        raise typer.BadParameter("give one of --nsqd and --nsqlookupd")
    files = {"tlsCaFile": ca_file, "tlsCertFile": cert_file, "tlsKeyFile": key_file}
    for path in filter(None, files.values()):
        if not path.is_file():
            raise typer.BadParameter(f"no such file: {path}")
    if not tls and (any(files.values()) or not verify):
        raise typer.BadParameter("--tls-ca-file, --tls-cert-file, --tls-key-file and --no-tls-verify need --tls")
    if bool(cert_file) != bool(key_file):
        raise typer.BadParameter("--tls-cert-file and --tls-key-file go together")
    if tls:
        given |= {"tls": "true", "tlsVerify": str(verify).lower()}
        given |= {key: str(path.absolute()) for key, path in files.items() if path}
    return given


def with_nsqd(command: Callable[..., int]) -> Callable[..., int]:
    """A job with the options of a cluster, which it gets as its argument cluster."""
    return with_cluster(command, read_cluster, inspect.signature(read_cluster, eval_str=True).parameters)


def with_nodes(command: Callable[..., int]) -> Callable[..., int]:
    """The same for a job that uses only the cluster's HTTP API; the cluster may be None."""
    own = inspect.signature(read_nodes, eval_str=True).parameters
    return with_cluster(command, read_nodes, {
        name: own.get(name, parameter)
        for name, parameter in inspect.signature(read_cluster, eval_str=True).parameters.items() if name != "create"})


def with_cluster(command: Callable[..., int], read: Callable[..., Cluster | None],
                 options: Mapping[str, inspect.Parameter]) -> Callable[..., int]:
    """A job that gets read()'s result, from these options, as its argument cluster."""
    def call(**arguments: Any) -> int:      # Any: typer has read them
        return command(cluster=read(**{name: arguments.pop(name) for name in options}), **arguments)

    return with_options(call, command, options.values(), leave_out="cluster")


def without_nsqd(command: Callable[..., int]) -> Callable[..., int]:
    """A job without nsqd."""
    return with_options(command, command, ())


def with_options(call: Callable[..., int], command: Callable[..., int], more: Iterable[inspect.Parameter],
                 leave_out: str = "") -> Callable[..., int]:
    """Combines call with the arguments of command, those of more, and --verbose, in a form that typer reads."""
    def run(**arguments: Any) -> int:       # Any: typer has read them
        arguments.pop("verbose")
        return call(**arguments)

    own = inspect.signature(command, eval_str=True)
    parameters = [parameter for parameter in own.parameters.values() if parameter.name != leave_out]
    parameters += more
    parameters.append(inspect.Parameter("verbose", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Verbose))
    run = wraps(command)(run)
    run.__annotations__ = {}
    run.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters])
    return run
