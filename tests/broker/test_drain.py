"""A drain of more channels than fit into one slice."""

import asyncio

from nsqc.broker.drain import DRAINED, DRAINING, Drain
from nsqc.log import Log
from tests.broker.harness import publish, run, until
from tests.compiled.taker import Taker


class Impatient:
    """A slicer that ends each slice after one topic."""

    def __init__(self, slicer):
        self.start, self.call = slicer.start, slicer.call

    def is_over(self) -> bool:
        return True


def test_consumers_of_all_slices_are_waited_for_and_counted_once(tmp_path):
    async def scenario(broker):
        takers = []
        for number in range(10):
            topic = broker.get_topic(b"t%d" % number)
            taker = Taker(1)
            taker.subscribe(topic.get_channel(b"c"))
            assert await publish(topic, b"x") == 0
            takers.append(taker)
        drain = Drain(asyncio.get_running_loop(), broker, lambda: 3600 * 10**9, lambda draining: None, lambda: None,
                      Log(level=5))
        drain._slicer = Impatient(broker.slicer)
        await until(lambda: sum(channel.in_flight_count for topic in broker.topics.values()
                                for channel in topic.channels.values()) == 10)
        drain.begin(None, True)
        await until(lambda: drain.state().in_flight == 10)
        for _ in range(3):      # undone and restarted before all channels have been notified
            drain.undo()
            await asyncio.sleep(0)
            drain.begin(None, True)
        await until(lambda: drain.state().in_flight >= 10)
        for _ in range(50):
            await asyncio.sleep(0)
        state = drain.state()
        assert (state.state, state.in_flight, state.consumers) == (DRAINING, 10, 10)
        for topic in broker.topics.values():
            topic.channel(b"c").empty()
        await until(lambda: drain.state().state == DRAINED)
        drain.close()

    run(tmp_path, scenario)
