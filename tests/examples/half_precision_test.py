"""The tutorial about half precision, on a few images; on more in half_precision_slow_test."""
from material import losses_of_fine_tuning


def test_the_loss_goes_down(tmp_path):
    losses = losses_of_fine_tuning(tmp_path, images=36)
    assert losses[-1] < losses[0]
