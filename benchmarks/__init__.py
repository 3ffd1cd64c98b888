"""Benchmarks: ours beside its peers on the same work, parity checked before time counts."""
