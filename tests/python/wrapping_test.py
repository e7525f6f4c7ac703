"""What wrapping does to a module, and what becomes of it afterwards."""

import copy
import pickle
import weakref

import poptorch
import pytest
import torch
import torch.nn as nn
from models import MLP, BatchNormCNN, batch
from wrapped import QUIET, Direct, train


@pytest.mark.spec("1.2 shallow copy")
def test_flags_of_the_module_itself_are_copied_and_those_of_its_parts_shared():
    class Flags(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = nn.Dropout(0.5)
            self.factor = 2

        def forward(self, x):
            return self.part(x) * self.factor + (100 if self.training else 0)

    model = Flags().train()
    executor = poptorch.inferenceModel(model)
    model.eval()
    model.factor = 5
    # The copy kept its own flag and factor; the dropout is the same object and is off.
    assert torch.equal(executor(torch.ones(4)), torch.full((4,), 102.0))
    assert executor.model is not model and executor.model.training and not model.training
    model.part.train()
    assert torch.equal(executor(torch.ones(4)), torch.full((4,), 102.0))  # compiled is compiled


@pytest.mark.spec("1.2 class change", "1.4 destroy")
def test_training_changes_classes_and_destroy_changes_them_back():
    model = Direct()
    parameter, buffer = model.scale, model.offset
    executor = train(model)
    assert type(model).__name__ == "PoptorchDirect" and isinstance(model, Direct)
    assert type(model.sub) is nn.Linear
    assert type(parameter) is not nn.Parameter and isinstance(parameter, nn.Parameter)
    assert type(buffer) is not torch.Tensor and isinstance(buffer, torch.Tensor)
    assert model.scale is parameter and model.sub.weight.is_leaf
    executor.destroy()
    assert type(model) is Direct and type(parameter) is nn.Parameter
    assert type(buffer) is torch.Tensor and not parameter.__dict__
    inference = poptorch.inferenceModel(model)
    assert type(model) is Direct and type(inference.model) is Direct


@pytest.mark.spec("1.2 class change")
def test_a_program_may_unwrap_the_module_itself():
    from poptorch._impl import unwrapIfWrapped

    model = Direct()
    executor = train(model)
    assert unwrapIfWrapped(model) is model
    assert type(model) is Direct and type(model.scale) is nn.Parameter
    assert unwrapIfWrapped(model) is model and executor.isCompiled()


@pytest.mark.spec("1.2 buffer types")
def test_buffers_must_be_plain_tensors():
    class Special(torch.Tensor):
        pass

    model = Direct()
    model.sub.register_buffer("special", torch.ones(2).as_subclass(Special))
    with pytest.raises(poptorch.Error, match="'sub.special'.*Special"):
        poptorch.trainingModel(model)
    assert type(model) is Direct and type(model.scale) is nn.Parameter  # nothing is half done
    poptorch.inferenceModel(model)(torch.ones(2, 3))


@pytest.mark.spec("1.2 class change")
def test_parameters_of_a_derived_class_keep_it():
    class Named(nn.Parameter):
        pass

    model = Direct()
    model.scale = Named(torch.ones(3))
    executor = train(model)
    assert isinstance(model.scale, Named) and type(model.scale) is not Named
    assert type(copy.deepcopy(model).scale) is Named
    executor.destroy()
    assert type(model.scale) is Named


@pytest.mark.spec("1.2 wrapped module methods", "1.4 destroy before compile")
def test_the_module_can_free_its_program():
    model = Direct()
    assert not hasattr(model, "destroy")
    executor = poptorch.trainingModel(model, QUIET.clone())
    model.destroy()  # not compiled: nothing happens
    assert type(model).__name__ == "PoptorchDirect"
    assert model.copyWeightsToHostIfNeeded() is False
    executor(torch.ones(2, 3))
    assert model.copyWeightsToHostIfNeeded() is True
    assert model.copyWeightsToHostIfNeeded() is False
    model.destroy()
    assert not executor.isCompiled() and type(model) is Direct
    assert not hasattr(model, "destroy")


@pytest.mark.spec("1.4 destroy", "1.2 class change")
def test_destroy_unwraps_and_a_call_wraps_again():
    model = MLP()
    executor = train(model)
    executor.destroy()
    assert type(model) is MLP and type(model.layers[0].weight) is nn.Parameter
    assert not executor.isCompiled()
    before = copy.deepcopy(model.state_dict())
    x, labels = batch("MLP", size=4)
    assert executor(x, labels)[0].shape == (4, 4)
    assert type(model).__name__ == "PoptorchMLP"
    after = model.state_dict()  # the weights follow, as the first time
    assert all(not torch.equal(before[k], after[k]) for k in before)


@pytest.mark.spec("1.2 shallow copy", "1.3 lazy copy to host")
def test_layers_replaced_between_wrapping_and_compiling_take_part():
    model = Direct()
    executor = poptorch.trainingModel(model, QUIET.clone())
    model.sub = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        model.sub.weight.fill_(1.0)
    model.scale = nn.Parameter(torch.ones(3))
    executor.setOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    executor(torch.ones(2, 3))
    assert not model.sub.weight.eq(1).any() and not model.scale.eq(1).any()
    executor.destroy()
    assert type(model.sub.weight) is nn.Parameter


@pytest.mark.spec("1.2 class change", "1.3 lazy copy to host")
def test_a_part_and_the_whole_may_be_trained_in_turns():
    class Whole(nn.Module):
        def __init__(self, part):
            super().__init__()
            self.part = part

        def forward(self, x):
            return poptorch.identity_loss(self.part(x)[1] * 2, "mean")

    part = Direct()
    whole = Whole(part)
    of_part = poptorch.trainingModel(part, QUIET.clone())
    of_whole = poptorch.trainingModel(whole, QUIET.clone())
    reference = Direct()
    reference.load_state_dict(part.state_dict())
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.01)
    for factor, executor in [(1, of_part), (2, of_whole), (2, of_whole), (1, of_part)]:
        x = torch.full((2, 3), 0.5)
        executor(x)
        optimizer.zero_grad()
        (reference(x)[1] * factor).backward()
        optimizer.step()
        torch.testing.assert_close(part.scale.detach(), reference.scale.detach())
    of_part.destroy()
    assert type(part) is Direct and type(part.scale) is not nn.Parameter
    of_whole.destroy()
    assert type(part.scale) is nn.Parameter


@pytest.mark.spec("1.2 class change")
def test_a_wrapped_module_still_trains_by_itself():
    torch.manual_seed(0)
    model, reference = BatchNormCNN(), BatchNormCNN()
    reference.load_state_dict(model.state_dict())
    executor = poptorch.trainingModel(
        model, QUIET.clone(), torch.optim.SGD(model.parameters(), lr=0.1)
    )
    x, labels = batch("BatchNormCNN")
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (model, reference)]
    for _ in range(2):
        for m, optimizer in zip((model, reference), optimizers):
            optimizer.zero_grad()
            m(x, labels)[1].backward()
            optimizer.step()
    for ours, theirs in zip(model.state_dict().values(), reference.state_dict().values()):
        torch.testing.assert_close(ours, theirs)
    executor(x, labels)  # and goes on from there
    reference(x, labels)
    assert not torch.equal(model.fc.weight, reference.fc.weight)


@pytest.mark.spec("1.1 trainingModel", "1.1 inferenceModel")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_callers_mode_of_gradients_does_not_matter(mode):
    model = Direct()
    executor = poptorch.trainingModel(model, QUIET.clone())
    before = model.scale.detach().clone()
    with mode():
        executor(torch.ones(2, 3))
        poptorch.inferenceModel(model, QUIET.clone())(torch.ones(2, 3))
        assert not torch.equal(model.scale, before)
    executor(torch.ones(2, 3))
    model(torch.ones(2, 3))[1].backward()
    assert model.scale.grad is not None


@pytest.mark.spec("1.2 class change")
def test_layers_with_lists_of_weights_work_while_wrapped():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(3, 4, batch_first=True)

        def forward(self, x):
            y = self.lstm(x)[0]
            return y, poptorch.identity_loss(y, "sum")

    model = Recurrent()
    executor = poptorch.trainingModel(model, QUIET.clone())
    x = torch.randn(2, 5, 3)
    executor(x)
    executor.copyWeightsToHost()
    plain = copy.deepcopy(model)
    executor(x)
    executor.model(x)  # reads the newest weights
    assert not torch.equal(plain.lstm.weight_hh_l0, model.lstm.weight_hh_l0)
    torch.testing.assert_close(model(x)[0], copy.deepcopy(model)(x)[0])


@pytest.mark.spec("1.4 destroy")
def test_an_executor_that_goes_away_leaves_the_trained_weights():
    model = MLP()
    initial = copy.deepcopy(model.state_dict())
    executor = train(model, steps=2)
    gone = weakref.ref(executor)
    del executor
    assert gone() is None  # at once: nothing goes round in circles
    assert any(not torch.equal(initial[k], v) for k, v in model.state_dict().items())
    again = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0))
    again(*batch("MLP"))
    again.destroy()
    assert type(model) is MLP


@pytest.mark.spec("1.4 __call__ backward")
def test_results_have_nothing_to_differentiate():
    model = MLP()
    output, loss = poptorch.trainingModel(model, QUIET.clone())(*batch("MLP"))
    for result in (output, loss, output[0, 0]):
        with pytest.raises(poptorch.Error, match="cannot be called explicitly"):
            result.backward()
    assert not loss.requires_grad and type(loss) is torch.Tensor
    pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss), loss.clone(), loss.numpy()
    output.resize_(64, 4)
    # What is computed from results is the user's own.
    head = nn.Linear(4, 1)
    head(output[:3]).sum().backward()
    assert head.weight.grad is not None
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(1).backward()
