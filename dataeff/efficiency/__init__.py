"""How well a run uses its accelerators: model FLOPs utilisation, device counters, ranks that are gone or hang."""
