"""One engine, one verb: run a function over items on Dask `distributed`.

Without an address the cluster lives in this process and works with threads, since kernels and Arrow release the
interpreter's lock; with `workers` it is as many local processes; with an address it is whatever answers there.
Tasks exchange files, never text through the scheduler.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from dataeff.errors import DataeffError, PlanError

_QUIET = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.limit": "1h",
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.allowed-failures": 5,
    "distributed.scheduler.worker-saturation": 1.0,
}
_IN_FLIGHT_PER_THREAD = 4

# Arrow's allocator gives memory back that was free for so many milliseconds. At its default of a second, parts of a
# corpus fault in anew what the parts before have just left, which took a seventh of a run's time. It is read once, when
# Arrow is loaded; so it stands where corpora are made, and not in the way of a training script that is measured.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10000")


class Engine:
    """A running cluster; a context manager.

    Args:
        address: Scheduler to connect to, such as `tcp://10.0.0.1:8786`; None for one of our own.
        workers: Local processes to start; 0 works with threads in this process.
        threads: Threads a worker; None for one a core, divided among the workers.
        timeout_s: Seconds to wait for the scheduler at `address`.

    Raises:
        PlanError: No scheduler answers at the address, or it has no worker.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int = 0,
        threads: int | None = None,
        timeout_s: float = 15,
    ) -> None:
        import dask
        from distributed import Client, LocalCluster

        if workers < 0 or (threads is not None and threads < 1):
            raise PlanError(f"{workers} workers with {threads} threads; workers must be 0 or more, threads 1 or more")
        dask.config.set(_QUIET)
        for name in ("distributed", "distributed.worker", "distributed.nanny", "distributed.scheduler"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        logging.getLogger("tornado.application").addFilter(_is_news)
        self._stack = contextlib.ExitStack()
        if address is None:
            cluster = self._stack.enter_context(
                LocalCluster(
                    n_workers=max(1, workers),
                    threads_per_worker=threads or max(1, num_cores() // max(1, workers)),
                    processes=workers > 0,
                    memory_limit=0,
                    dashboard_address="127.0.0.1:0",  # of the scheduler's HTTP server, which there always is
                    scheduler_kwargs={"dashboard": False},  # loading it takes a second
                )
            )
            self._client = self._stack.enter_context(Client(cluster))
        else:
            try:
                self._client = self._stack.enter_context(Client(address, timeout=timeout_s))
            except (OSError, TimeoutError, ValueError) as error:
                raise PlanError(
                    f"no Dask scheduler answers at {address} ({error}); start one with `dask scheduler`"
                ) from error
            self._client.run_on_scheduler(_relax_scheduler)
        if self.num_threads == 0:
            self.close()
            raise PlanError(f"the scheduler at {address} has no worker; start some with `dask worker {address}`")

    @property
    def num_threads(self) -> int:
        """Threads of all workers there are now."""
        return sum(self._client.nthreads().values())

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Apply a function to every item; yields (index, result) as they finish.

        A task that dies with its worker is run again elsewhere, so functions must be safe to repeat. Only a few
        tasks a thread are in flight at once, so the scheduler's memory does not grow with the items.

        Raises:
            DataeffError: The first failure, as the task raised it; what is still running is cancelled.
        """
        import cloudpickle
        from distributed import as_completed

        waiting = iter(enumerate(items))
        running: dict[Any, int] = {}
        finished = as_completed(with_results=False)

        def submit() -> None:
            for index, item in waiting:
                # Pickled here, so that what only the recipe's own file defines travels along, and what cannot be
                # unpickled fails the task; left to the scheduler's messages it would silence the worker.
                future = self._client.submit(_call, cloudpickle.dumps((function, item)), pure=False)
                running[future] = index
                finished.add(future)
                return

        try:
            for _ in range(_IN_FLIGHT_PER_THREAD * max(1, self.num_threads)):
                submit()
            for future in finished:
                index = running.pop(future)
                yield index, _result(future)
                del future
                submit()
                if not running:
                    return
        finally:
            if running:
                self._client.cancel(list(running), force=True)

    def close(self) -> None:
        """Stop what this engine started; a cluster it only connected to goes on."""
        self._stack.close()

    def __enter__(self) -> Self:
        """The engine itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close."""
        self.close()


def _call(pickled: bytes) -> Any:
    function, item = pickle.loads(pickled)
    return function(item)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a log line of Dask's event loop says anything.

    Interrupted while a call to the scheduler begins, distributed 2026.8 cancels what is not there yet and logs the
    NameError that this gives; whoever pressed Ctrl-C is told what became of the run by ourselves.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], NameError))


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _result(future: Any) -> Any:
    from distributed import KilledWorker

    try:
        return future.result()
    except KilledWorker as error:
        raise DataeffError(
            f"a task lost its worker again and again ({error}); most often a worker ran out of memory: give it more, "
            "or make parts smaller (`Read(part_bytes=...)`), and run the same command again"
        ) from error


def _relax_scheduler(dask_scheduler: Any) -> None:
    dask_scheduler.allowed_failures = max(dask_scheduler.allowed_failures, 5)
