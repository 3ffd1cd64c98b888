"""A Hugging Face Trainer on a tiny random model: `hugging_face.py SLOW FOLDER`."""

import sys

from slow_data import LENGTH, VOCABULARY, SlowTokens, compute
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Work(TrainerCallback):
    def on_pre_optimizer_step(self, *args, **kwargs):
        compute(0.005)


def main():
    slow, folder = sys.argv[1:]
    model = GPT2LMHeadModel(
        GPT2Config(
            n_layer=1, n_head=1, n_embd=8, vocab_size=VOCABULARY, n_positions=LENGTH, bos_token_id=0, eos_token_id=0
        )
    )
    arguments = TrainingArguments(
        folder,
        max_steps=30,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=8,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=SlowTokens(120, slow, 0.01),
        # Evaluation is always slow: it must not be taken for a stall of the training.
        eval_dataset=SlowTokens(16, "storage", 0.02),
        callbacks=[Work()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
