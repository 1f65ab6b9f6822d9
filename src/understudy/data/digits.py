"""scikit-learn's bundled digits: 1,797 images, 8 × 8, ten classes; no network needed.

The images keep their 8 × 8 pixels: the networks for small images halve them twice, to 2 × 2, and enlarging to
16 × 16 adds cost, four times the mult-adds, but no information. The grey value is repeated over three
channels, because the networks begin with three.
"""

from __future__ import annotations

import torch

from .images import Images

# By file order and not by chance. The end of the file is harder than images taken from all over it, so that
# networks still differ on it.
TEST_SIZE = 500
MEAN, STD = 0.3059, 0.3754  # of the training part, pixels in 0..1


def load_digits() -> Images:
    """The digits; the last 500 of the file are the test part."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ImportError(
            f"digits come with scikit-learn, which cannot be imported ({error}); "
            "pip install 'understudy[demo]' brings it"
        ) from error

    bunch = datasets.load_digits()
    grey = torch.from_numpy(bunch.images)  # (N, 8, 8), whole numbers in 0..16
    images = (grey * 255 / 16).round().to(torch.uint8)[:, None].repeat(1, 3, 1, 1)
    labels = torch.from_numpy(bunch.target).to(torch.int64)
    return Images(
        name="digits",
        classes=tuple("0123456789"),
        mean=(MEAN,) * 3,
        std=(STD,) * 3,
        train_images=images[:-TEST_SIZE],
        train_labels=labels[:-TEST_SIZE],
        test_images=images[-TEST_SIZE:],
        test_labels=labels[-TEST_SIZE:],
    )
