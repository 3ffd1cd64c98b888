"""A plain torch loop: `plain.py SLOW NUM_WORKERS [SECONDS_A_SAMPLE] [STEPS]`."""

import sys

import torch
from slow_data import LENGTH, VOCABULARY, SlowTokens, compute
from torch.utils.data import DataLoader


def main():
    slow, num_workers = sys.argv[1], int(sys.argv[2])
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 0.005
    steps = int(sys.argv[4]) if len(sys.argv) > 4 else 30
    model = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 8), torch.nn.Flatten(), torch.nn.Linear(8 * LENGTH, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(SlowTokens(2 * steps, slow, seconds), batch_size=2, num_workers=num_workers)
    for batch in loader:
        loss = model(batch["input_ids"]).square().mean()
        loss.backward()
        compute(0.002)
        optimizer.step()
        optimizer.zero_grad()
    print("trained", batch["input_ids"].shape[0])


if __name__ == "__main__":
    main()
