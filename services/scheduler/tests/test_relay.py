import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from sluice_core.adapters import redis
from sluice_core.adapters.db import outbox
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.schema import outbox as outbox_table
from sluice_core.domain.errors import BrokerAwayError
from sluice_core.domain.lanes import Actor, queues_of
from sluice_core.runtime.broker import SluiceBroker
from sluice_scheduler import relay
from sluice_scheduler.duties import Duties
from sluice_scheduler.pauses import PauseMirror
from sluice_scheduler.scheduling import Scheduling
from sluice_testing.factories import NOW, make_job, next_order, start_run

QUEUES = queues_of(Actor.PARSE)


@pytest.fixture
def broker(redis_url):
    client = redis.connect_broker(redis_url)
    yield SluiceBroker(client)
    client.close()


def waiting(broker):
    return sum(broker.waiting(QUEUES).values())


def submit(engine, **fields):
    with write(engine) as connection:
        return make_job(connection, **fields)


def test_rows_are_left_to_their_writer_for_two_seconds(engine, broker):
    submit(engine)
    assert relay.relay(engine, broker, now=NOW + 1.9) == 0
    assert relay.relay(engine, broker, now=NOW + 2.1) == 1
    assert waiting(broker) == 1
    # Marked: it is not published again while it waits.
    assert relay.relay(engine, broker, now=NOW + 10) == 0


def test_a_row_that_becomes_due_later_is_published_at_its_time(engine, broker):
    submit(engine, not_before=NOW + 3600)
    assert relay.relay(engine, broker, now=NOW + 3599) == 0
    assert relay.relay(engine, broker, now=NOW + 3600) == 1


def test_nothing_is_marked_while_redis_is_away(engine, own_redis):
    broker = SluiceBroker(redis.connect_broker(own_redis.url, socket_timeout=0.5))
    submit(engine)
    own_redis.kill9()
    with pytest.raises(BrokerAwayError):
        relay.relay(engine, broker, now=NOW + 5)
    with read(engine) as connection:
        assert outbox.lag(connection, NOW + 5) == (1, 5.0)
    broker.client.close()


def test_a_row_that_its_writer_published_is_no_second_message(engine, broker):
    job = submit(engine)
    with read(engine) as connection:
        row = next_order(connection, job.id)
    broker.publish(row.id, row.actor, row.queue, {"job": job.id, "epoch": row.epoch})
    assert relay.relay(engine, broker, now=NOW + 5) == 1
    assert waiting(broker) == 1


def test_lost_messages_are_published_again_at_the_same_epoch(engine, broker):
    jobs = [submit(engine) for _ in range(3)]
    relay.relay(engine, broker, now=NOW + 5)
    with write(engine) as connection:
        start_run(connection, jobs[0].id)  # claimed: not lost
    broker.client.flushdb()
    lost = relay.republish_lost(engine, broker, published_before=NOW + 100, now=NOW + 100)
    assert lost == 2
    assert waiting(broker) == 2
    with read(engine) as connection:
        row = next_order(connection, jobs[1].id)
        assert (row.epoch, row.publishes) == (0, 2)


def test_what_waits_is_not_lost(engine, broker):
    submit(engine)
    relay.relay(engine, broker, now=NOW + 5)
    assert relay.republish_lost(engine, broker, published_before=NOW + 100, now=NOW + 100) == 0
    assert waiting(broker) == 1


def test_looking_for_lost_ones_walks_through_no_queue(engine, broker):
    for _ in range(3):
        submit(engine)
    relay.relay(engine, broker, now=NOW + 5)
    broker.client.config_resetstat()
    assert relay.republish_lost(engine, broker, published_before=NOW + 100, now=NOW + 100) == 0
    # With 50,000 that wait, a walk for each kept Redis from everything else for half a minute.
    walks = {"cmdstat_lpos", "cmdstat_lrange", "cmdstat_lrem"}
    assert not walks & broker.client.info("commandstats").keys()


def test_an_emptied_redis_is_noticed_once(redis_url):
    one, two = redis.connect(redis_url), redis.connect_broker(redis_url)
    emptied = relay.EmptiedRedis(one, two)
    assert emptied.check()  # never seen before counts as emptied: nothing is lost by looking
    assert not emptied.check()
    two.flushdb()
    assert emptied.check()
    assert not emptied.check()
    one.close()
    two.close()


def test_a_redis_that_begins_empty_is_no_event_and_one_that_is_emptied_is(deps):
    duties = Duties(deps, Scheduling(deps), PauseMirror(deps))
    now = deps.clock()
    submit(deps.engine, now=now - 5)
    relay.relay(deps.engine, deps.broker, now=now)
    for client in (deps.broker.client, deps.signals):
        client.flushdb()
    with capture_logs() as told:
        duties.refill()
        duties.refill()
        assert waiting(deps.broker) == 1
        deps.broker.client.flushdb()
        duties.refill()
        assert waiting(deps.broker) == 1
    assert [(line["event"], line["log_level"]) for line in told] == [
        ("redis_filled", "info"),
        ("redis_was_empty", "warning"),
    ]


def test_two_relays_publish_each_row_once(engine, broker):
    for _ in range(50):
        submit(engine)
    first = relay.relay(engine, broker, now=NOW + 5)
    second = relay.relay(engine, broker, now=NOW + 5)
    assert (first, second) == (50, 0)
    assert waiting(broker) == 50
    with read(engine) as connection:
        published = connection.execute(sa.select(sa.func.count()).select_from(outbox_table))
        assert published.scalar_one() == 50
