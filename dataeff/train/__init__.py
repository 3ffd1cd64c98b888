"""The training loop: a small GPT on token shards, timed to the last phase. An instrument, not a framework."""
