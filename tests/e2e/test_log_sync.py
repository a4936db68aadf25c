"""Publishers of a log with sync = "fsync" share syncs: all are answered, each in its order."""

import json
import threading
from collections import defaultdict

from tests.support.daemon import Daemon, batch

PUBLISHERS = 24
EACH = 40


def test_publishers_that_wait_for_each_other_are_all_answered(tmp_path):
    """Some publish one by one, some pipeline, some stop midway."""
    node = Daemon(tmp_path / "data", "--topic-storage=log", "--log-sync=fsync")
    failures: list[BaseException] = []

    def publish(number: int) -> None:
        try:
            client = node.connect()
            for at in range(EACH):
                body = b"%d-%d" % (number, at)
                if number % 4 == 1 and at % 7 == 3:
                    client.ok("MPUB t", batch(body))
                elif number % 4 == 2 and at % 7 == 3:
                    client.ok("DPUB t 1", body)
                elif number % 4 == 3 and at == EACH // 2:
                    client.command("PUB t", body)
                    break       # does not wait for the answer
                else:
                    client.ok("PUB t", body)
            client.close()
        except BaseException as error:
            failures.append(error)

    try:
        threads = [threading.Thread(target=publish, args=(number,)) for number in range(PUBLISHERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        node.kill()
        node.start()
        node.post("/channel/create?topic=t&channel=c&from=beginning")
        client = node.connect().sub("t", "c", 2000)
        full = [number for number in range(PUBLISHERS) if number % 4 != 3]
        # A publish of a client that disconnected may or may not be stored.
        count = json.loads(node.http("GET", "/topic/log?topic=t")[1])["next_offset"]
        found = defaultdict(list)
        for message in client.messages(count):
            number, at = map(int, message.body.split(b"-"))
            found[number].append(at)
        client.close()
        for number in full:
            assert sorted(found[number]) == list(range(EACH))
            if number % 4 != 2:     # a deferred message comes later
                assert found[number] == sorted(found[number])
    finally:
        node.close()
