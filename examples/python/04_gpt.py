"""A small GPT that learns to write as a text does, character by character.

usage: 04_gpt.py [text file]

The text is the GNU General Public License, which every Debian system has, or a file of your own.
"""

import math
import pathlib
import sys

import poptorch
import torch
from torch import nn
from torch.nn import functional as F

LENGTH, WIDTH, HEADS, LAYERS = 64, 64, 4, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.to_qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.from_heads = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        # A character sees itself and those before it.
        self.register_buffer("later", torch.ones(LENGTH, LENGTH).triu(1).bool())

    def attention(self, x):
        batch = x.shape[0]
        q, k, v = self.to_qkv(x).view(batch, LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        weights = scores.masked_fill(self.later, float("-inf")).softmax(dim=-1)
        return self.from_heads((weights @ v).transpose(1, 2).reshape(batch, LENGTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.token = nn.Embedding(characters, WIDTH)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters)

    def forward(self, x, following=None):
        logits = self.head(self.norm(self.blocks(self.token(x) + self.position)))
        if following is None:
            return logits[:, -1]
        return F.cross_entropy(logits.flatten(0, 1), following.flatten())


file = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/common-licenses/GPL-3"
text = " ".join(pathlib.Path(file).read_text().split())  # without line ends and indents
characters = sorted(set(text))
numbers = torch.tensor([characters.index(character) for character in text])
windows = numbers.unfold(0, LENGTH + 1, 1)

torch.manual_seed(0)
model = GPT(len(characters))
# A call does ten updates.
options = poptorch.Options().deviceIterations(10).outputMode(poptorch.OutputMode.Sum)
optimizer = poptorch.optim.AdamW(model.parameters(), lr=4e-3)
training = poptorch.trainingModel(model, options, optimizer)
losses = []
for call in range(30):
    batch = windows[torch.randint(len(windows), (10 * 16,))]
    loss = training(batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
    losses.append(loss.item() / 10)
    if call % 10 == 9:
        print(f"after {10 * (call + 1)} updates: loss {losses[-1]:.2f}")
training.destroy()

# The program has one shape, so it always sees the last LENGTH characters.
writing = poptorch.inferenceModel(model.eval())
written = numbers[5000 : 5000 + LENGTH].tolist()
for _ in range(300):
    likely = torch.softmax(writing(torch.tensor([written[-LENGTH:]])) / 0.5, dim=1)
    written.append(torch.multinomial(likely, 1).item())
print("".join(characters[number] for number in written[LENGTH:]))

assert losses[-1] < 0.6 * math.log(len(characters))  # guessing gives the logarithm
