"""A torch DataLoader as a clock that ticks: every tick, whoever computes gets an equal share of the processors."""

from __future__ import annotations


def taken_at(
    storage: list[int],
    compute: list[int],
    loop: list[int],
    *,
    workers: int,
    prefetch: int,
    cores: int,
    send: int,
    receive: int,
    batches: int,
    tick: float,
) -> list[float]:
    """When the loop took each batch; times are whole numbers, those of batch k at k modulo their number."""
    period, now = len(loop), 0.0
    queues: list[list[int]] = [[k for k in range(workers * prefetch) if k % workers == w] for w in range(workers)]
    issued = workers * prefetch
    making: list[list[float] | None] = [None] * workers
    sending: list[tuple[float, int]] = []
    arrived: list[int] = []
    had: set[int] = set()
    receiving: list[float] | None = None
    busy = 0.0
    taken: list[float] = []
    while len(taken) < batches:
        for worker in range(workers):
            if making[worker] is None and queues[worker]:
                batch = queues[worker].pop(0)
                making[worker] = [batch, storage[batch % period], compute[batch % period]]
        for due, batch in [entry for entry in sending if entry[0] <= now + tick / 2]:
            sending.remove((due, batch))
            arrived.append(batch)
        if busy <= 0 and receiving is None:
            if len(taken) in had:
                batch = len(taken)
                had.remove(batch)
                taken.append(now)
                busy = loop[batch % period]
                queues[issued % workers].append(issued)
                issued += 1
                continue
            if arrived:
                receiving = [arrived.pop(0), receive]
        computing = [made for made in making if made is not None and made[1] <= 0]
        wanting = len(computing) + (busy > 0 or receiving is not None)
        share = tick * min(1.0, cores / wanting) if wanting else tick
        now += tick
        for worker, made in enumerate(making):
            if made is None:
                continue
            if made[1] > 0:
                made[1] -= tick
            else:
                made[2] -= share
            if made[1] <= 0 and made[2] <= tick / 100:
                sending.append((now + send, int(made[0])))
                making[worker] = None
        if busy > 0:
            busy -= share
            busy = 0.0 if busy <= tick / 100 else busy
        elif receiving is not None:
            receiving[1] -= share
            if receiving[1] <= tick / 100:
                had.add(int(receiving[0]))
                receiving = None
    return taken
