"""A small training program that meets a fault: program.py FOLDER FAULT.

Instance 0 writes checkpoints into the folder; the fault happens to the instance that FAULTY names,
in the middle of training. Without one the program ends after a few steps with results.pt.
"""

import os
import pathlib
import resource
import sys
import time

import poptorch
import torch

FOLDER, FAULT = pathlib.Path(sys.argv[1]), sys.argv[2]
FAULTY = 0 if FAULT == "disk" else 1
BATCH, STEPS, STEP_OF_FAULT = 4, 20, 8
LONG = 1000  # seconds

options = poptorch.Options().showCompilationProgressBar(False)
instance = options.Distributed.processId
is_faulty = instance == FAULTY


class Samples(torch.utils.data.Dataset):
    taken = 0

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        self.taken += 1
        if is_faulty and FAULT == "loader" and self.taken > STEP_OF_FAULT * BATCH:
            raise ValueError("this sample is damaged")
        random = torch.Generator().manual_seed(index)
        return torch.randn(64, generator=random), torch.randn(128, generator=random)


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.Linear(width, 128))
        self.loss = torch.nn.MSELoss()

    def forward(self, x, y):
        return self.loss(self.layers(x), y)


def save(path, contents):
    """Whoever looks finds the old file or the new one, and never a part."""
    unfinished = path.with_suffix(".unfinished")
    torch.save(contents, unfinished)
    os.replace(unfinished, path)


def meet_fault():
    print("instance", instance, "has met its fault, process", os.getpid(), flush=True)
    if FAULT == "exit":
        sys.exit(3)
    elif FAULT == "leave":
        os._exit(0)
    elif FAULT == "absent":
        time.sleep(LONG)
    elif FAULT == "memory":
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (64 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        torch.ones(1 << 28)
    elif FAULT == "disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000))


def train():
    if is_faulty and FAULT == "late":
        print("instance", instance, "has met its fault", flush=True)
        time.sleep(LONG)
    if FAULT == "seed":
        options.randomSeed(5 + instance)
    if FAULT == "options":
        options.deviceIterations(1 + instance)
    torch.manual_seed(1)
    model = Model(64 + (instance if FAULT == "graph" else 0))
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    training = poptorch.trainingModel(model, options, optimizer)
    workers = 1 if FAULT == "kill" else 0
    loader = poptorch.DataLoader(options, Samples(), batch_size=BATCH, num_workers=workers)
    losses = []
    for step, (x, y) in enumerate(loader):
        if is_faulty and step == STEP_OF_FAULT:
            meet_fault()
        if step == STEPS and FAULT == "none" or is_faulty and FAULT == "batches" and step == 10:
            break
        losses.append(training(x, y))
        if instance == 0 and step % 4 == 0:
            training.copyWeightsToHost()
            save(FOLDER / "checkpoint.pt", {"step": step, "model": model.state_dict()})
    if instance == 0:
        training.copyWeightsToHost()
        save(FOLDER / "results.pt", {"losses": losses, "model": model.state_dict()})


if __name__ == "__main__":
    train()
