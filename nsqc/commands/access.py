"""`nsqc access`: tokens for access files, and the users and permissions in such a file. Needs no daemon."""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from nsqc.access.needs import CHANNEL, CONSUME, GRANTS, NODE, TOPIC, Need
from nsqc.commands.output import EXIT_REFUSED, EXIT_USAGE, fail, print_text

if TYPE_CHECKING:
    from nsqc.access.rules import Rules, User

command = typer.Typer(help="Create tokens, edit and check access files, and list permissions.")

File = Annotated[str, typer.Argument(help="the access file", metavar="FILE")]
AsJson = Annotated[bool, typer.Option("--json", help="as JSON")]
Grant = Annotated[str, typer.Argument(help=", ".join(GRANTS), metavar="GRANT")]
Target = Annotated[str, typer.Argument(help="TOPIC or TOPIC/CHANNEL; default: the whole node", metavar="TARGET")]


def need_of(grant: str, target: str) -> tuple[Need, str, str]:
    """The queried need, topic and channel. Raises ValueError."""
    from nsqc.wire.parser import is_valid_name

    if grant not in GRANTS:
        raise ValueError(f"{grant!r} is not a grant; use one of {', '.join(GRANTS)}")
    topic, slash, channel = target.partition("/")
    for name in (topic, channel) if slash else (topic,) if topic else ():
        if not is_valid_name(name.encode()):
            raise ValueError(f"{target!r} is neither TOPIC nor TOPIC/CHANNEL")
    if grant == CONSUME and not channel:
        raise ValueError("consume needs a channel: give TOPIC/CHANNEL")
    return Need((grant,), CHANNEL if channel else TOPIC if topic else NODE), topic, channel


def rules_of(file: str) -> Rules:
    """Reads the rules of a file. Raises AccessError."""
    from nsqc.access.rules import read

    return read(file)


@command.command("token")
def token_command(as_json: AsJson = False) -> int:
    """Create a token, and its hash for an access file.

    The token is printed once and stored nowhere. Add the hash to the `tokens` of a user. Example: `nsqc access token`.
    """
    from nsqc.access.rules import make

    token, stored = make()
    print_text(json.dumps({"token": token, "hash": str(stored)}) if as_json else
               f'token:  {token}\ntokens = ["{stored}"]')
    return 0


@command.command("check")
def check_command(
    file: File,
    user: Annotated[str, typer.Argument(help="a user, or anonymous", metavar="[USER]")] = "",
    grant: Annotated[str, typer.Argument(help=", ".join(GRANTS), metavar="[GRANT]")] = "",
    target: Target = "",
) -> int:
    """Check an access file, or whether a user may do something, and why.

    The exit code is 1 if the file has an error, or if the user lacks the permission. Examples: `nsqc access check
    /etc/nsqc/access.toml`, `nsqc access check /etc/nsqc/access.toml billing consume orders/billing`.
    """
    from nsqc.access.rules import AccessError

    try:
        rules = rules_of(file)
    except AccessError as error:
        return fail("access check", str(error))
    if not user:
        print_text(f"{file}: ok, {len(rules.users)} user{'' if len(rules.users) == 1 else 's'}")
        return 0
    found = everybody(rules).get(user)
    if found is None:
        return fail("access check", f"{file} has no user {user!r}")
    try:
        need, topic, channel = need_of(grant, target)
    except ValueError as error:
        return fail("access check", str(error), EXIT_USAGE)
    reason = reason_of(rules, found, need, topic, channel)
    what = f"{user}: {grant} {target or 'everything'}"
    print_text(f"{what}: {f'yes, {reason}' if reason else 'no, no grant covers it'}")
    return 0 if reason else EXIT_REFUSED


@command.command("who")
def who_command(file: File, grant: Grant, target: Target = "", as_json: AsJson = False) -> int:
    """List the users that may do something, and why.

    Examples: `nsqc access who /etc/nsqc/access.toml publish orders`, `nsqc access who /etc/nsqc/access.toml admin`.
    """
    from nsqc.access.rules import AccessError

    try:
        rules = rules_of(file)
        need, topic, channel = need_of(grant, target)
    except AccessError as error:
        return fail("access who", str(error))
    except ValueError as error:
        return fail("access who", str(error), EXIT_USAGE)
    reasons = {name: reason for name, user in everybody(rules).items()
               if (reason := reason_of(rules, user, need, topic, channel))}
    if as_json:
        print_text(json.dumps([{"user": name, "reason": reason} for name, reason in reasons.items()], indent=2))
    elif reasons:
        width = max(map(len, reasons))
        print_text("\n".join(f"{name:<{width}}  {reason}" for name, reason in reasons.items()))
    return 0


def everybody(rules: Rules) -> dict[str, User]:
    """The users by name, and clients without a token if they have any permissions."""
    found = dict(rules.users)
    if rules.anonymous is not None:
        found[rules.anonymous.name] = rules.anonymous
    return found


def reason_of(rules: Rules, user: User, need: Need, topic: str, channel: str) -> str:
    """Why a user may do something; empty: it may not. Users also have the anonymous permissions."""
    reason = user.reason(need, topic, channel)
    if not reason and rules.anonymous is not None:
        reason = rules.anonymous.reason(need, topic, channel)
    return reason


# ====================================================================== edits
# Edits keep the rest of the file as it is, comments included, and replace it atomically: servers never read half of it.

Scopes = Annotated[list[str] | None, typer.Option(
    metavar="SCOPE", help="TOPIC or TOPIC/CHANNEL, names or globs; may be repeated")]
Name = Annotated[str, typer.Argument(help="the user", metavar="USER")]
BARE = re.compile(r"[A-Za-z0-9_-]+")      # a key without quotes
HEADER = re.compile(r"\s*\[")
TOKENS = re.compile(r"\s*(tokens|\"tokens\"|'tokens')\s*=")


@command.command("add")
def add_command(
    file: File, user: Name, publish: Scopes = None, consume: Scopes = None, read: Scopes = None, stats: Scopes = None,
    admin: Scopes = None,
    role: Annotated[list[str] | None, typer.Option(metavar="ROLE", help="may be repeated")] = None,
) -> int:
    """Add a user with a new token, which is printed once. Creates the file if it is missing.

    Example: `nsqc access add /etc/nsqc/access.toml billing --consume "orders.*/billing" --publish invoices`.
    """
    given = {"roles": role, "publish": publish, "consume": consume, "read": read, "stats": stats, "admin": admin}

    def change(text: str, stored: str) -> str:
        lines = [f"[users.{user if BARE.fullmatch(user) else json.dumps(user)}]", f"tokens = {json.dumps([stored])}"]
        lines += [f"{key} = {json.dumps(texts)}" for key, texts in given.items() if texts]
        return (text.rstrip("\n") + "\n\n" if text.strip() else "") + "\n".join(lines) + "\n"

    return edit("add", file, user, change, exists=False)


@command.command("rotate")
def rotate_command(
    file: File, user: Name,
    only: Annotated[bool, typer.Option("--only", help="remove the earlier tokens at once")] = False,
) -> int:
    """Give a user a new token, which is printed once. Earlier tokens stay valid until they are revoked.

    Examples: `nsqc access rotate /etc/nsqc/access.toml billing`; once all clients have the new token, `nsqc access
    revoke /etc/nsqc/access.toml billing --token ID`.
    """
    def change(text: str, stored: str) -> str:
        begin, lines, end = parts(text, user)
        return with_tokens(begin, lines, end, [stored, *([] if only else tokens_in(text, user))])

    return edit("rotate", file, user, change)


@command.command("revoke")
def revoke_command(
    file: File, user: Name,
    token: Annotated[str, typer.Option(metavar="ID", help="only this token: the 12 digits after nsqc_")] = "",
) -> int:
    """Remove a user, or one of its tokens. Servers close its connections within a second.

    Example: `nsqc access revoke /etc/nsqc/access.toml billing`.
    """
    def change(text: str, stored: str) -> str:
        begin, lines, end = parts(text, user)
        if not token:
            return begin + end
        kept = [one for one in tokens_in(text, user) if one.split(":")[1] != token]
        if len(kept) == len(tokens_in(text, user)):
            raise ValueError(f"user {user} has no token {token!r}")
        return with_tokens(begin, lines, end, kept)

    return edit("revoke", file, user, change, makes_token=False)


def edit(action: str, path: str, user: str, change: Callable[[str, str], str], exists: bool = True,
         makes_token: bool = True) -> int:
    """Changes the file; returns the exit code. change(text, hash of a new token): may raise ValueError. exists: the
    user must be there, and otherwise must not."""
    from nsqc.access.rules import AccessError, make, parse
    from nsqc.options.file import TomlError

    token, stored = make() if makes_token else ("", None)
    path = os.path.realpath(path)       # a link stays one
    try:
        with locked(path, exists) as (before, status):
            rules = parse(before)
            if (user in rules.users) != exists:
                raise ValueError(f"{path} has {'no' if exists else 'already a'} user {user!r}")
            text = change(before, str(stored))
            after = parse(text)
            if {**after.users, user: None} != {**rules.users, user: None} or (after.anonymous, after.nodes) != (
                    rules.anonymous, rules.nodes) or (makes_token and stored not in after.users[user].tokens):
                raise ValueError(f"{path} cannot be edited safely: write its users as tables, [users.NAME]")
            written(path, text, status)
    except OSError as error:
        return fail(f"access {action}", f"{error.filename or path}: {error.strerror}")
    except TomlError as error:
        return fail(f"access {action}", f"{path}: {re.sub(' at line.*', '', str(error))}")
    except (AccessError, ValueError) as error:
        return fail(f"access {action}", str(error))
    if token:
        print_text(token)
    return 0


@contextmanager
def locked(path: str, exists: bool) -> Iterator[tuple[str, os.stat_result]]:
    """The text and the status of the file, while no other edit runs. exists: it must. Raises OSError, ValueError."""
    while True:
        descriptor = os.open(path, os.O_RDWR if exists else os.O_RDWR | os.O_CREAT, 0o600)
        with open(descriptor, encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            status = os.fstat(descriptor)
            if os.path.exists(path) and os.path.samestat(os.stat(path), status):
                yield file.read(), status
                return
            # Another edit has replaced it meanwhile.


def written(path: str, text: str, status: os.stat_result) -> None:
    """Replaces the file durably, with the mode and the owner that it had. Raises OSError."""
    new = f"{path}.new"     # one that is there is of an edit that was killed: this one has the lock
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchown(descriptor, status.st_uid, status.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


def parts(text: str, user: str) -> tuple[str, list[str], str]:
    """The text before a user's table, the lines of it, and the text after it. Raises ValueError."""
    from nsqc.options.check import is_complete, lines_of

    lines = text.splitlines(keepends=True)
    begin = lines_of(text)("users", user) - 1
    if begin < 0 or not re.match(r"\s*\[\s*users\s*\.", lines[begin]) or "]" not in lines[begin]:
        raise ValueError(f"user {user} cannot be edited: write it as a table, [users.{user}]")
    end = next((at for at in range(begin + 1, len(lines))
                if HEADER.match(lines[at]) and is_complete("".join(lines[:at]))), len(lines))
    return "".join(lines[:begin]), lines[begin:end], "".join(lines[end:])


def tokens_in(text: str, user: str) -> list[str]:
    """The hashes of a user's tokens."""
    from nsqc.access.rules import parse

    return [str(token) for token in parse(text).users[user].tokens]


def with_tokens(begin: str, lines: list[str], end: str, tokens: list[str]) -> str:
    """The text with other tokens in a user's table."""
    from nsqc.options.check import is_complete

    at = next((number for number, line in enumerate(lines) if TOKENS.match(line)), 1)
    stop = at
    if at < len(lines) and TOKENS.match(lines[at]):
        stop = next(number for number in range(at + 1, len(lines) + 1) if is_complete("".join(lines[at:number])))
    listed = ",\n          ".join(json.dumps(token) for token in tokens)
    return begin + "".join([*lines[:at], f"tokens = [{listed}]\n", *lines[stop:]]) + end
