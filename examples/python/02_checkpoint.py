"""Stops a training half way, and goes on from a file as if nothing had happened."""

import pathlib
import tempfile

import poptorch
import torch


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 3)
        )

    def forward(self, x, labels):
        out = self.layers(x)
        return out, torch.nn.functional.cross_entropy(out, labels)


def new_training(model):
    options = poptorch.Options().randomSeed(7)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.01)
    return poptorch.trainingModel(model, options, optimizer), optimizer


def train(training, batches):
    return [training(x, labels)[1].item() for x, labels in batches]


torch.manual_seed(0)
x = torch.randn(40, 16, 8)
batches = list(zip(x, x[:, :, :3].argmax(dim=2)))  # the largest of the first three numbers

# Without a stop.
torch.manual_seed(1)
training, _ = new_training(Classifier())
expected = train(training, batches)

# With one. What dropout draws goes on too, because the state of the random numbers is in the file.
torch.manual_seed(1)
model = Classifier()
training, optimizer = new_training(model)
losses = train(training, batches[:20])
file = pathlib.Path(tempfile.mkdtemp()) / "checkpoint.pt"
checkpoint = {
    "model": model.state_dict(),
    "optimizer": optimizer.state_dict(),
    "random": training.rng_state,
}
torch.save(checkpoint, file)
training.destroy()
del training, model, optimizer

# A new program begins here.
checkpoint = torch.load(file)
model = Classifier()
model.load_state_dict(checkpoint["model"])
training, optimizer = new_training(model)
optimizer.load_state_dict(checkpoint["optimizer"])
training.compile(*batches[20])
training.rng_state = checkpoint["random"]
losses += train(training, batches[20:])

assert losses == expected  # to the last bit
assert sum(losses[-5:]) < sum(losses[:5])
