"""An Accelerate loop, which moves batches itself and reads one ahead: `accelerated.py SLOW NUM_WORKERS`."""

import sys

import torch
from accelerate import Accelerator
from slow_data import LENGTH, VOCABULARY, SlowTokens, compute
from torch.utils.data import DataLoader


def main():
    slow, num_workers = sys.argv[1], int(sys.argv[2])
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 8), torch.nn.Flatten(), torch.nn.Linear(8 * LENGTH, 1))
    loader = DataLoader(SlowTokens(60, slow, 0.01), batch_size=2, num_workers=num_workers)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
    for batch in loader:
        loss = model(batch["input_ids"]).square().mean()
        accelerator.backward(loss)
        compute(0.005)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
