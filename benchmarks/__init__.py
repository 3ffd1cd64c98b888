"""Benchmarks: ours beside its peers on the same work, parity checked before time counts."""

import dataeff.engine  # noqa: F401  As for whoever runs the command: before Arrow, whose memory it sets.
