"""A dataset in memory that is slow in one known way; knows nothing of dataeff."""

import time

import torch
from torch.utils.data import Dataset

VOCABULARY = 32
LENGTH = 8


def spin(seconds):
    """Keep this thread's processor busy for so much of its own time, however busy the machine is."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class SlowTokens(Dataset):
    """Rows of random tokens; each takes `seconds` of sleep ("storage"), computing ("decode"), or nothing ("none").

    "storage,decode,none" is slow in one way after the other, as reading goes on.
    """

    def __init__(self, rows, slow, seconds):
        self.rows = torch.randint(VOCABULARY, (rows, LENGTH), generator=torch.Generator().manual_seed(1))
        self.slow, self.seconds, self.read = slow.split(","), seconds, 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        slow = self.slow[min(self.read * len(self.slow) // len(self.rows), len(self.slow) - 1)]
        self.read += 1
        if slow == "storage":
            time.sleep(self.seconds)
        elif slow == "decode":
            spin(self.seconds)
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def compute(seconds):
    """Stand in for a model's work, so that a step has a known length at least."""
    spin(seconds)
