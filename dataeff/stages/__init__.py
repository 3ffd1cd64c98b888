"""Stages: what a recipe is made of. Each reads what the stages before it committed, and commits its own."""
