"""A student of a model that saves itself: the silent way is loud, and the way that works does."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import understudy as us


class Saving(nn.Module):
    """Has the method that writes a file by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.hidden(x))
        return y

    def save_pretrained(self, folder: Path) -> str:
        return f"saved to {folder}"


class Around(nn.Module):
    """A model that saves itself within one that does not, beside another without a stand-in."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Saving()
        self.other = Saving()
        self.head = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.encoder(x) + self.other(x))
        return y


def student(verb: Any = us.substitute) -> Any:
    model = Around()
    return verb(model, us.plan(model, "low_rank", knob=1, include=["encoder.hidden"]))


def assert_guarded(model: Any) -> None:
    with pytest.raises(RuntimeError, match=r"understudy\.save.*understudy\.load\(path, Saving\(config\)\)"):
        model.encoder.save_pretrained("folder")
    assert model.other.save_pretrained("folder") == "saved to folder"


@pytest.mark.parametrize("verb", [us.substitute, us.substitute_], ids=["copy", "in_place"])
def test_a_model_that_would_save_stand_ins_by_itself_refuses_and_says_what_works(verb: Any) -> None:
    assert_guarded(student(verb))


def test_copies_and_loaded_students_refuse_too(tmp_path: Path) -> None:
    made = student()
    file = io.BytesIO()
    torch.save(made, file)
    file.seek(0)
    us.save(made, tmp_path / "student")
    twins = [copy.deepcopy(made), pickle.loads(pickle.dumps(made)), torch.load(file, weights_only=False)]
    for twin in (*twins, us.load(tmp_path / "student", Around())):
        assert_guarded(twin)
        assert torch.equal(twin(torch.ones(2, 8)), made(torch.ones(2, 8)))


def test_a_merged_model_saves_itself_as_ever() -> None:
    merged: Any = us.merge(student())
    assert merged.encoder.save_pretrained("folder") == "saved to folder"


def test_the_original_saves_itself_as_ever() -> None:
    model = Around()
    us.substitute(model, us.plan(model, "low_rank", knob=1, include=["encoder.hidden"]))
    assert model.encoder.save_pretrained(Path("folder")) == "saved to folder"


def test_a_student_of_a_transformer_is_saved_beside_its_configuration_and_loaded(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    model = transformers.BertForSequenceClassification(config).eval()
    made: Any = us.substitute(model, us.plan(model, "low_rank", knob=2))
    with pytest.raises(
        RuntimeError, match=r"understudy\.load\(path, BertForSequenceClassification\(config\)\)"
    ):
        made.save_pretrained(tmp_path)
    us.save(made, tmp_path / "student.safetensors")
    made.config.save_pretrained(tmp_path)
    again = transformers.BertForSequenceClassification(transformers.BertConfig.from_pretrained(tmp_path))
    loaded = us.load(tmp_path / "student.safetensors", again).eval()
    tokens = torch.arange(12).reshape(2, 6)
    assert torch.equal(loaded(tokens).logits, made(tokens).logits)
    merged: Any = us.merge(made)
    merged.save_pretrained(tmp_path / "merged")
    plain = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "merged").eval()
    torch.testing.assert_close(plain(tokens).logits, made(tokens).logits)
