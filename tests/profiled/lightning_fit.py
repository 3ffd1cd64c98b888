"""A Lightning Trainer on a tiny random model: `lightning_fit.py SLOW FOLDER`."""

import sys

import lightning
import torch
from slow_data import LENGTH, VOCABULARY, SlowTokens, compute
from torch.utils.data import DataLoader


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Embedding(VOCABULARY, 8), torch.nn.Flatten(), torch.nn.Linear(8 * LENGTH, 1)
        )

    def training_step(self, batch, index):
        compute(0.005)
        return self.layers(batch["input_ids"]).square().mean()

    def validation_step(self, batch, index):
        self.log("loss", self.layers(batch["input_ids"]).square().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def main():
    slow, folder = sys.argv[1:]
    trainer = lightning.Trainer(
        max_steps=30,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        val_check_interval=8,
    )
    trainer.fit(
        Model(),
        DataLoader(SlowTokens(60, slow, 0.01), batch_size=2),
        # Evaluation is always slow: it must not be taken for a stall of the training.
        DataLoader(SlowTokens(8, "storage", 0.02), batch_size=2),
    )


if __name__ == "__main__":
    main()
