"""A trained network on the test images: its errors, and what it costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from understudy._util.factories import check_trust
from understudy.distil.frozen import call, frozen
from understudy.fitting.inputs import OutputOf, output_that_matters
from understudy.students.cost import Cost, cost

from .figures import Errors
from .job import Batch, BatchSource, as_batches, batches_to_test, load_data
from .losses import target_loss
from .precision import autocast, in_layout
from .processes import Processes, join
from .recipe import Recipe, load_recipe
from .run import Run
from .settings import REQUEST_KEYS
from .teacher import load_trained

_OF_THE_NETWORK = {"network", "plan", "request", *REQUEST_KEYS}


def evaluate(
    network: nn.Module,
    batches: BatchSource | Iterable[Batch],
    settings: Recipe | None = None,
    *,
    device: torch.device | None = None,
    output_of: OutputOf | None = None,
) -> Errors:
    """Top-1 and top-5 error in percent, and the loss, on all batches; the network is left as it was.

    `output_of` takes the logits of what the network returns, by default the first tensor of numbers.

    >>> import torch
    >>> from understudy.train import evaluate
    >>> logits, labels = torch.eye(4), torch.tensor([0, 1, 2, 0])
    >>> evaluate(torch.nn.Identity(), [(logits, labels)]).test_error  # the last of four is wrong
    25.0
    """
    recipe = settings or Recipe(channels_last=False)
    first = five = count = labelled = 0
    loss = 0.0
    place = Processes(0, 1, device or next((one.device for one in network.parameters()), torch.device("cpu")))
    with frozen(network):
        for x, y in as_batches(batches, place).epoch(0):
            with autocast(recipe, place.device):
                output = call(network, in_layout(x, channels_last=recipe.channels_last))
            logits = output_that_matters(output, output_of).float()
            loss += float(target_loss(recipe.loss, logits, y, summed=True))
            count += len(y)
            if not y.is_floating_point() and logits.dim() == 2:
                hits = logits.topk(min(5, logits.shape[1])).indices == y[:, None]
                first, five, labelled = (
                    first + int(hits[:, 0].sum()),
                    five + int(hits.sum()),
                    labelled + len(y),
                )
    if not count:
        raise ValueError("there is nothing to test on: no batch came")
    return Errors(
        test_loss=loss / count,
        test_error=100 * (1 - first / labelled) if labelled else None,
        test_top5_error=100 * (1 - five / labelled) if labelled else None,
        test_images=count,
    )


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What came out of testing a trained network, and of counting it.

    >>> import understudy as us
    >>> from understudy.train import evaluate_trained
    >>> us.save(us.create_model("wrn_10_1", classes=10), "trained.safetensors")
    >>> found = evaluate_trained("trained.safetensors", "demo", {"network": "wrn_10_1"})
    >>> found.recipe.network, found.errors.test_images, found.cost.params
    ('wrn_10_1', 500, 77850)
    """

    recipe: Recipe
    errors: Errors
    cost: Cost


def evaluate_trained(
    target: str | Path,
    recipe: str | Path | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    data_folder: Path | None = None,
    download: bool = False,
    device: str | None = None,
    trust: bool = False,
) -> Evaluation:
    """Test the network of a finished run, or a file of weights for the network and data of a recipe.

    Without `trust`, no function that the folder of a run names is called.

    >>> from understudy.train import evaluate_trained, load_recipe, train
    >>> tiny = {"network": "wrn_10_1", "epochs": 1, "train_images": 32, "batch_size": 32}
    >>> outcome = train(load_recipe("demo", tiny), Path("run"))
    >>> evaluate_trained("run").errors.test_error == outcome.errors.test_error
    True
    """
    target, changes = Path(target), dict(changes or {})
    if target.is_dir():
        if recipe is not None:
            raise ValueError("a recipe is for a file of weights; a run has its own")
        for key in sorted(changes.keys() & _OF_THE_NETWORK):
            raise ValueError(f"{key} cannot change: the network is trained already")
        held = Run.read(target).recipe
        given = {} if "data" in changes else {"data": held.data}
        check_trust(target, {"network": held.network, **given}, trust=trust)
        resolved = held.replaced(changes)
    elif recipe is None:
        raise ValueError(f"{target} is no run: say which network and data it is for by a recipe (--recipe)")
    else:
        resolved = load_recipe(recipe, changes)
    place = join(device).device
    data = load_data(resolved, data_folder, download=download)
    network = load_trained(target, resolved, len(data.classes), trust=trust).to(place)
    errors = evaluate(network, batches_to_test(resolved, data, place), resolved, device=place)
    return Evaluation(resolved, errors, cost(network, data.example))
