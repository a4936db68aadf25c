"""Shows where time and memory are spent. Paths are those of Go's net/http/pprof; answers are readable text.

  /debug/pprof                this list
  /debug/pprof/cmdline        the command line, its parts separated by NUL
  /debug/pprof/profile        where the loop spends its time: `?seconds=N` (30) of samples, one folded stack per line
  /debug/pprof/heap           memory use, registrations, live Python objects: the most frequent and nsqc's;
                              `?exact=true` also counts unreferenced objects, if there are few
  /debug/pprof/goroutine      the stacks of all threads and tasks
  /debug/pprof/threadcreate   the threads
  /debug/slow                 iterations of the loop that took longer than --slow-loop: the worst of the last hour
"""

from __future__ import annotations

from nsqc.httpd.debug import heap_page
from nsqc.httpd.reply import Reply, Request, plain
from nsqc.lookupd.site import LookupSite


def index(site: LookupSite, request: Request) -> Reply:
    """The list of these pages."""
    assert __doc__ is not None
    return plain(__doc__.partition("\n\n")[2])


async def heap(site: LookupSite, request: Request) -> Reply:
    """Memory, registrations, live objects."""
    registry = site.registry
    return await heap_page(site, request, [
        f"topics {len(registry.topics)}",
        f"topics_with_channels {len(registry.channels)}",
        f"nodes {len(registry.clients.producers)}",
        f"connections {len(site.hub.connections)}",
        f"http_connections {sum(len(server.connections) for server in site.servers)}",
    ])
