"""`nsqc access`: tokens for access files, and the permissions in such a file. Needs no daemon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from nsqc.access.needs import CHANNEL, CONSUME, GRANTS, NODE, TOPIC, Need
from nsqc.commands.output import EXIT_REFUSED, EXIT_USAGE, fail, print_text

if TYPE_CHECKING:
    from nsqc.access.rules import Rules, User

command = typer.Typer(help="Create tokens, check access files, and list permissions.")

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
