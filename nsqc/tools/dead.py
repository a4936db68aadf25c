"""`nsqc dead`: shows dead letters, redrives them to the channels that they come from, or drops them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from nsqc.options.option import Kind, Option
from nsqc.tools import running
from nsqc.tools.acting import Acting, count, nodes_for
from nsqc.tools.declare import HTTP_NODES, JSON, TOPIC, YES, Argument, Group, Tool, ToolError, Values
from nsqc.wire.outside import Json

if TYPE_CHECKING:
    from nsqc.tools.cluster import Node, NodeHttp

PAGE, MOST = 1000, 10_000       # letters of one call
MOST_CALLS = 100_000            # of one node
NOT_KNOWN = "-"
ORIGIN = Option("origin", "only letters of this channel, or of all channels of a topic", Kind.TEXT, "",
                metavar="TOPIC[/CHANNEL]")
REASON = Option("reason", "only letters that died for this reason", Kind.TEXT, "", metavar="REASON")
ID = Option("id", "only the letter with this id, or whose message had it before", Kind.TEXT, "", metavar="ID")
COUNT = Option("count", "at most this many letters on each node; 0: all", Kind.INT, 0, least=0, short="n")
DRY_RUN = Option("dry-run", "say what would be done, and do nothing", Kind.BOOL, False)
FILTERS = (ORIGIN, REASON, ID)


def asked(values: Values) -> dict[str, str]:
    """The arguments of a call, as the options say."""
    return {"topic": values.text("TOPIC"), **{name: values.text(name) for name in ("origin", "reason", "id")
                                              if values.text(name)}}


# ---------------------------------------------------------------------- list

def list_letters(values: Values) -> int:
    """`nsqc dead list`."""
    acting, topic = Acting(values, "nsqc dead list"), values.text("TOPIC")
    found = acting.cluster.each(nodes_for(acting.cluster), lambda api, node: list(groups(api, topic)), acting.warn)
    rows = [["TOPIC", "NODE", "ORIGIN", "REASON", "WAITING", "OLDEST"]]
    for node, listed in found.items():
        for group in listed:
            if values.flag("json"):
                running.as_json({"node": node.http, **group})
            else:
                rows.append([group["topic"], node.http, group["origin"] or NOT_KNOWN, group["reason"] or NOT_KNOWN,
                             str(group["count"]), running.moment(group["oldest"])])
    if not values.flag("json"):
        running.write(running.table(rows, frozenset((4,))))
    return acting.code


def groups(api: NodeHttp, wanted: str) -> Iterator[Json]:
    """What waits in the dead-letter topics of a node, or in one topic, by origin and reason."""
    for topic in checked(api, api.get("/dead"), "topics"):
        if wanted in ("", topic["topic"]):
            yield from groups_of(api, topic)


def groups_of(api: NodeHttp, topic: Json) -> Iterator[Json]:
    name = topic["topic"]
    if topic["storage"] != "log":
        yield {"topic": name, "storage": "memory", "origin": None, "reason": None, "count": topic["waiting"],
               "oldest": None}
        return
    found: dict[tuple[str | None, str | None], Json] = {}
    for page in pages(api, "GET", "/dead/list", {"topic": name}):
        for group in checked(api, page, "groups"):
            one = found.setdefault((group["origin"], group["reason"]), {
                "topic": name, "storage": "log", "origin": group["origin"], "reason": group["reason"], "count": 0,
                "oldest": None})
            one["count"] += group["count"]
            if group["oldest"] is not None:
                one["oldest"] = min(one["oldest"] or group["oldest"], group["oldest"])
    yield from sorted(found.values(), key=lambda group: (group["origin"] or "", group["reason"] or ""))


def pages(api: NodeHttp, method: str, path: str, arguments: dict[str, str]) -> Iterator[Json]:
    """The answers of a call that is repeated from where the one before has ended. Raises ToolError."""
    begin: int | None = 0
    for _ in range(MOST_CALLS):
        if begin is None:
            return
        page = checked(api, api.json(method, path, {**arguments, "from": str(begin)}))
        yield page
        begin = following_of(api, page, begin)
    raise strange(api)


def following_of(api: NodeHttp, page: Json, begin: int, moved: int = 0) -> int | None:
    """Where the next call begins; None: this was the last. A position that does not advance would be requested forever,
    unless the call has moved letters. Raises ToolError."""
    following = page.get("next")
    if following is None:
        return None
    if not isinstance(following, int) or (following <= begin and moved <= 0):
        raise strange(api)
    return following


def number_of(api: NodeHttp, answer: Json, key: str) -> int:
    """A count in an answer. Raises ToolError."""
    value = answer.get(key, 0)
    if not isinstance(value, int) or value < 0:
        raise strange(api)
    return value


def checked(api: NodeHttp, answer: Any, key: str = "") -> Any:    # Any: JSON
    """An answer, or a list of objects in it. Raises ToolError."""
    if not isinstance(answer, dict):
        raise strange(api)
    if not key:
        return answer
    listed = answer.get(key)
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise strange(api)
    return listed


def strange(api: NodeHttp) -> ToolError:
    """The error for what nsqc does not answer."""
    return ToolError(f"{api.address}: does not answer as nsqc does")


# ---------------------------------------------------------------------- show

def show(values: Values) -> int:
    """`nsqc dead show`."""
    acting = Acting(values, "nsqc dead show")
    arguments = {**asked(values), "body": values.text("body"), "max_bytes": str(values.number("max-bytes"))}
    left, nodes = values.number("count") or 2**62, acting.holders(arguments["topic"])

    def look(api: NodeHttp, node: Node) -> None:
        nonlocal left
        begin: int | None = 0
        while left > 0 and begin is not None:
            page = checked(api, api.get("/dead/show", {**arguments, "from": str(begin), "limit": str(min(left, PAGE))}))
            for letter in checked(api, page, "messages"):
                left -= 1
                print_letter(node, letter, values.flag("json"), len(nodes) > 1)
            begin = following_of(api, page, begin)

    acting.cluster.each(nodes, careful(acting, look), acting.warn)
    return acting.code


def print_letter(node: Node, letter: Json, as_json: bool, with_node: bool) -> None:
    """One letter: a line."""
    from nsqc.tools.peek import body

    if as_json:
        running.as_json({"node": node.http, **letter})
        return
    parts = [f"{node.http} " if with_node else "", f"{letter['offset']}  {letter['id']}"]
    origin = letter.get("origin")
    if origin:
        parts.append(f"  from {origin['topic']}/{origin['channel']}  {origin['reason']}, attempts {origin['attempts']}"
                     f"  published {running.moment(origin['timestamp'])}")
        if origin.get("client"):
            parts.append(f"  last client {origin['client']['client_id']} {origin['client']['remote_address']}")
    parts.append(f"  {letter['size']} B  {body(letter)}")
    running.line("".join(parts).rstrip())


# ---------------------------------------------------------------------- redrive, drop

def redrive(values: Values) -> int:
    """`nsqc dead redrive`."""
    acting, arguments = Acting(values, "nsqc dead redrive"), asked(values)
    for option, name in (("target", "to"), ("channel", "source")):
        if values.text(option):
            arguments[name] = values.text(option)
    nodes = acting.holders(arguments["topic"])
    return act(acting, nodes, "/dead/redrive", arguments, "redriven", values.flag("dry-run"))


def drop(values: Values) -> int:
    """`nsqc dead drop`."""
    acting, arguments = Acting(values, "nsqc dead drop"), asked(values)
    nodes = acting.holders(arguments["topic"])
    if values.flag("dry-run"):
        return act(acting, nodes, "/dead/drop", arguments, "dropped", True)
    acting.confirm(f"Drop {'these letters' if len(arguments) > 1 else 'all letters'} of topic {arguments['topic']} on "
                   f"{count(len(nodes), 'node')}: they cannot be redriven afterwards")
    return act(acting, nodes, "/dead/drop", arguments, "dropped", False)


def act(acting: Acting, nodes: Iterable[Node], path: str, arguments: dict[str, str], word: str, dry_run: bool) -> int:
    """Calls nodes until no letter is left, or enough are done; the exit code."""
    values = acting.values

    def work(api: NodeHttp, node: Node) -> None:
        done, left = 0, values.number("count") or 2**62
        skipped: dict[tuple[str | None, str], int] = {}
        begin: int | None = 0
        for _ in range(MOST_CALLS):
            page = checked(api, api.json("POST", path, {**arguments, "from": str(begin), "limit": str(min(left, MOST)),
                                                        "dry_run": "true" if dry_run else "false"}))
            moved = number_of(api, page, word)
            done, left = done + moved, left - moved
            for one in checked(api, page, "skipped"):
                key = one.get("origin"), str(one.get("reason"))
                skipped[key] = skipped.get(key, 0) + number_of(api, one, "count")
            begin = following_of(api, page, begin or 0, moved)
            if left <= 0 or begin is None:
                break
        else:
            raise strange(api)
        report(acting, node, done, skipped, word, dry_run)

    acting.cluster.each(nodes, careful(acting, work), acting.warn)
    return acting.code


def report(acting: Acting, node: Node, done: int, skipped: dict[tuple[str | None, str], int], word: str,
           dry_run: bool) -> None:
    """What was done on a node."""
    if acting.values.flag("json"):
        running.as_json({"node": node.http, "dry_run": dry_run, word: done, "skipped": [
            {"origin": origin, "reason": reason, "count": number} for (origin, reason), number in skipped.items()]})
        return
    running.line(f"{node.http}: {count(done, 'letter')} {'would be ' if dry_run else ''}{word}")
    for (origin, reason), number in skipped.items():
        running.note(f"{node.http}: {count(number, 'letter')} of {origin or 'unknown origin'} left: {reason}")


def careful(acting: Acting, call: Callable[[NodeHttp, Node], None]) -> Callable[[NodeHttp, Node], None]:
    """A call whose refusals are warnings: other nodes are still asked."""
    def ask(api: NodeHttp, node: Node) -> None:
        from nsqc.tools.cluster import BadStatus

        try:
            call(api, node)
        except BadStatus as error:
            acting.warn(f"{node.http}: is an nsqd, which has no dead letters" if error.message == "NOT_FOUND"
                        else f"{node.http}: {error.message or error.status}")

    return ask


DEAD_TOPIC = TOPIC._replace(help="the dead-letter topic")
TOOL = Group(("dead",), "Show dead letters, redrive them to the channels that they come from, or drop them.", (
    Tool(("dead", "list"), "List what waits in dead-letter topics, by origin and reason.", list_letters,
         options=(JSON, *HTTP_NODES), arguments=(Argument("TOPIC", "one dead-letter topic", Kind.TOPIC, False),),
         text="""Letters wait until they are redriven or dropped, or until the log of their topic does not keep them any
             longer. Those of topics in memory do not say where they come from.""",
         examples=(("nsqc dead list", "on the local daemon"),
                   ("nsqc dead list orders.dead --json", "for a script"))),
    Tool(("dead", "show"), "Show the letters that wait in a dead-letter topic in a log.", show,
         options=(*FILTERS, COUNT._replace(help="at most this many letters; 0: all", default=10),
                  Option("body", "the form of bodies; json: as JSON where they are", Kind.TEXT, "text",
                         choices=("text", "json", "base64", "none")),
                  Option("max-bytes", "of each body; longer ones are cut", Kind.SIZE, 65536, least=0, most=1 << 20),
                  JSON._replace(help="a line of JSON for each letter"), *HTTP_NODES),
         arguments=(DEAD_TOPIC,),
         examples=(("nsqc dead show orders.dead --origin orders/billing", "the first ten of a channel"),
                   ("nsqc dead show orders.dead --id 18a8e85002e69000 --json", "everything known of one"))),
    Tool(("dead", "redrive"), "Move letters back to the channels that they come from.", redrive,
         options=(*FILTERS, COUNT, DRY_RUN,
                  Option("target", "the channel that they go to instead of the one that they come from", Kind.TEXT, "",
                         metavar="TOPIC/CHANNEL"),
                  Option("channel", "the channel of a dead-letter topic in memory that they wait in", Kind.CHANNEL, ""),
                  JSON, *HTTP_NODES),
         arguments=(DEAD_TOPIC,),
         text="""A letter goes to its channel only: other channels of the topic do not get it again. It is a new message
             there, with no attempts. Dead-letter topics in memory do not know where letters come from: name both
             channels.""",
         examples=(("nsqc dead redrive orders.dead --dry-run", "count them"),
                   ("nsqc dead redrive orders.dead --origin orders/billing -n 10", "ten of one channel"),
                   ("nsqc dead redrive old.dead --channel ops --target old/billing", "of a topic in memory"))),
    Tool(("dead", "drop"), "Drop letters: they are not redriven, and wait no longer.", drop,
         options=(*FILTERS, COUNT, DRY_RUN, YES, JSON, *HTTP_NODES), arguments=(DEAD_TOPIC,),
         text="Asks for confirmation, unless --yes is given.",
         examples=(("nsqc dead drop orders.dead --origin orders/billing --yes", "in a script"),))))
