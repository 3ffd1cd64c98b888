"""Comparing what to train on: candidates, trials under one journal, tokens-to-target, and what they cost."""
