"""Scripts that go wrong, or that have no loop to measure: `odd.py WHAT`."""

import os
import signal
import sys
import time


def train(then, steps=12, loader=True):
    import torch
    from torch.utils.data import DataLoader

    weight = torch.nn.Parameter(torch.ones(4))
    weight.grad = torch.zeros(4)
    optimizer = torch.optim.SGD([weight])
    batches = DataLoader(torch.ones(64, 4), batch_size=2) if loader else range(32)
    for step, _ in enumerate(batches):
        if step == steps:
            then()
        optimizer.step()


def read():
    import torch
    from torch.utils.data import DataLoader

    for _ in DataLoader(torch.ones(64, 4), batch_size=2):
        pass


def crash():
    raise RuntimeError("the loss is not a number")


def interrupted():
    print("waiting", flush=True)
    time.sleep(60)


def main():
    what = sys.argv[1]
    if what == "crash":
        train(crash)
    elif what == "exit":
        train(lambda: sys.exit(7))
    elif what == "killed":
        train(lambda: os.kill(os.getpid(), signal.SIGKILL))
    elif what == "interrupted":
        train(interrupted)
    elif what == "no-loader":
        train(crash, steps=99, loader=False)
    elif what == "no-step":
        read()
    elif what == "no-torch":
        print("nothing to do")
    elif what == "own-profiler":
        from dataeff.profile import Profiler

        Profiler("elsewhere").start()
    elif what == "environment":
        print(__name__, __file__, sys.argv[1:], sys.path[0], "torch" in sys.modules, "numpy" in sys.modules)


if __name__ == "__main__":
    main()
