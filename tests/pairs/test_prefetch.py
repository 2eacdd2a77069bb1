import threading
import time

import pytest

from truepair.pairs.prefetch import Prefetcher


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "truepair-prefetch"]


def wait_until(condition):
    limit = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.001)


@pytest.mark.parametrize("depth", [1, 2, 10])
def test_items_come_in_order_and_the_thread_ends(depth):
    with Prefetcher(range(50), depth) as items:
        assert list(items) == list(range(50))
        assert list(items) == []
    assert not threads()


def test_it_reads_ahead_but_no_further_than_its_depth():
    begun = []

    def source():
        for item in range(100):
            begun.append(item)
            yield item

    with Prefetcher(source(), depth=3) as items:
        wait_until(lambda: len(begun) == 4)  # three wait in the queue, one in the thread's hand
        time.sleep(0.02)
        assert len(begun) == 4
        assert next(items) == 0
        wait_until(lambda: len(begun) == 5)


def test_an_error_comes_at_its_place():
    def source():
        yield 1
        yield 2
        raise ValueError("row 7")

    with Prefetcher(source()) as items:
        assert next(items) == 1
        assert next(items) == 2
        with pytest.raises(ValueError, match="row 7"):
            next(items)
        with pytest.raises(StopIteration):
            next(items)
    assert not threads()


def test_leaving_early_ends_the_thread():
    with Prefetcher(range(10**9)) as items:
        for item in items:
            if item == 5:
                break
    assert not threads()
    assert list(items) == []


def test_an_error_of_the_consumer_ends_the_thread():
    with pytest.raises(RuntimeError), Prefetcher(range(10**9)):
        raise RuntimeError
    assert not threads()


def test_the_waiting_share_tells_a_slow_reader_from_a_slow_consumer():
    def slow():
        for item in range(5):
            time.sleep(0.02)
            yield item

    with Prefetcher(slow()) as items:
        list(items)
        assert 0.6 < items.waiting_share <= 1
    with Prefetcher(range(5)) as items:
        for _ in items:
            time.sleep(0.02)
        assert 0 <= items.waiting_share < 0.4


def test_depth_must_be_positive():
    with pytest.raises(ValueError, match="depth"):
        Prefetcher([], depth=0)
