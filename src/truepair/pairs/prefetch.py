"""Reading ahead in a background thread, and knowing how long the reader had to be waited for."""

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class _End:
    """Stands behind the last item. error: what ended the source early, if anything did."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class Prefetcher(Generic[T]):
    """Iterates over a source that a background thread works through, at most `depth` items ahead.

    An error in the source is raised at its place in the order. Use it in a `with` block, which ends the thread
    also when the loop is left early:

        with Prefetcher(reader(rows) for rows in order.batches(epoch)) as batches:
            for batch in batches: ...
    """

    def __init__(self, source: Iterable[T], depth: int = 2) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth}")
        self._queue: queue.Queue[T | _End] = queue.Queue(maxsize=depth)
        self._stopped = threading.Event()
        self._ended = False
        self._waited = 0.0
        self._started = time.perf_counter()
        self._thread = threading.Thread(
            target=self._work, args=(source,), daemon=True, name="truepair-prefetch"
        )
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._ended:
            raise StopIteration
        begin = time.perf_counter()
        item = self._queue.get()
        self._waited += time.perf_counter() - begin
        if isinstance(item, _End):
            self._ended = True
            self.close()
            if item.error is not None:
                raise item.error
            raise StopIteration
        return item

    @property
    def waiting_share(self) -> float:
        """The share of the time since the start in which the consumer waited for an item, 0 to 1."""
        return self._waited / max(time.perf_counter() - self._started, 1e-9)

    def close(self) -> None:
        """End the thread. Items that were read ahead are thrown away."""
        self._ended = True
        self._stopped.set()
        while self._thread.is_alive():
            try:
                self._queue.get_nowait()
            except queue.Empty:
                self._thread.join(timeout=0.01)

    def __enter__(self) -> "Prefetcher[T]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _work(self, source: Iterable[T]) -> None:
        end = _End()
        try:
            for item in source:
                if not self._put(item):
                    return
        except BaseException as error:
            end = _End(error)
        self._put(end)

    def _put(self, item: T | _End) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False
