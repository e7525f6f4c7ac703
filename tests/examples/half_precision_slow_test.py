"""The tutorial about half precision, on as many images as it takes to see it learn."""
from material import losses_of_fine_tuning


def test_the_loss_goes_down_in_every_epoch(tmp_path):
    losses = losses_of_fine_tuning(tmp_path, images=600)
    assert losses == sorted(losses, reverse=True)
