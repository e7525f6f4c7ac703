"""torch.compile() as a peer, which PyTorch 2 has: its own compiler Inductor, and our backend."""
import torch


def _in_format(side, model, batch):
    """Tuned, images lie as oneDNN likes them."""
    if side != "inductor_tuned":
        return model, batch
    images = [x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in batch]
    return model.to(memory_format=torch.channels_last), images


def _compiled(side, function):
    if side == "backend":
        return torch.compile(function, backend="tessera")
    if side == "inductor_default":
        return torch.compile(function)
    torch._inductor.config.cpp_wrapper = True
    return torch.compile(function, mode="max-autotune")


def training_step(side, model, batch, optimizer):
    """A step of which forward, backward and, by Inductor, the update are compiled."""
    model, batch = _in_format(side, model, batch)
    forward = _compiled(side, model)
    update = optimizer.step if side == "backend" else _compiled(side, optimizer.step)

    def step():
        optimizer.zero_grad(set_to_none=True)
        _, loss = forward(*batch)
        loss.backward()
        update()
        return loss

    return step


def inference_step(side, model, images):
    model, (images,) = _in_format(side, model, [images])
    forward = _compiled(side, model)
    return lambda: forward(images)
