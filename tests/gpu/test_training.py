"""Training steps, encode and evaluate on a GPU, proven without one: see `tests/support/pretended_gpu.py`."""

from functools import partial

import numpy as np
import pytest
import torch

from fne.describing.run import new_task
from fne.evaluation.metrics import ranks
from fne.evaluation.score_retrieval import evaluate
from fne.matching import encode, task
from fne.matching.hard_negatives import MINERS, LossChoices
from fne.matching.image_heads import IMAGE_HEADS
from fne.matching.instance_loss import Classes, class_numbers, new_instance
from fne.matching.model import Shape, new_matcher
from fne.matching.settings import ROWS, InstanceLoss
from fne.matching.similarities import SIMILARITIES
from fne.matching.task import MatchingTask, Objective
from fne.matching.text_encoders import TEXT_ENCODERS
from fne.store.catalog import Captioned
from fne.store.layout import Layer
from fne.store.rows import Rows, write_rows
from fne.training import loop
from fne.training.best_epoch import Phase
from fne.training.loop import Schedule, Trainer
from fne.training.optimizers import CLIPS, OPTIMIZERS
from fne.training.run import schedule_of
from tests.support import captions
from tests.support import tagging as tags
from tests.support.pairs import FEATURES, WORDS
from tests.support.pretended_gpu import GPU, HostReadError, MixedDevicesError, pretended_gpu
from tests.support.training import MatchingPhase, matching_data, optimizer, trainer
from tests.support.variants import settings_of

CUDA = torch.device("cuda")
SMALL = {
    "dual_path": {"hidden": [6]},
    "mlp": {"hidden": [6]},
    "mlp_bn_first": {"hidden": [6]},
    "bow_mlp": {"hidden": [6]},
    "bow_mlp_bn_first": {"hidden": [6]},
    "text_cnn": {"width": 1 / 64, "positions": 6, "blocks": [1, 1, 1, 1]},
}
SUM = MatchingPhase("sum_hinge", 0.2, 0.01, epochs=1, patience=1)


def block(name):
    found = settings_of(name, **SMALL.get(name, {}))
    return found.model_dump() if found else {}


def shape(head="linear", encoder="gru", similarity="cosine"):
    own = [block(name) for name in (head, encoder)]
    return Shape(head, encoder, similarity, similarity != "cosine", FEATURES, WORDS, 5, 8, *own)


def losses_of_steps(pairs, device, chosen, phase=SUM, **choices):
    matcher = new_matcher(chosen, seed=0).to(device)
    made = trainer(pairs, chosen, phase, matcher=matcher, **choices)
    return [made.step(batch)[0] for batch in made.task.batches(0)]


def assert_steps_read_once(pairs, *arguments, **choices):
    expected = losses_of_steps(pairs, torch.device("cpu"), *arguments, **choices)
    with pretended_gpu() as gpu:
        found = losses_of_steps(pairs, CUDA, *arguments, **choices)
    # The GRU of a GPU rounds in another way than ours on a CPU.
    assert found == pytest.approx(expected, rel=5e-3)
    assert gpu.downloads == len(found) > 1


@pytest.mark.parametrize(
    "chosen",
    [
        *({"encoder": each} for each in TEXT_ENCODERS if each not in ROWS),
        *({"head": each} for each in IMAGE_HEADS),
        *({"similarity": each} for each in SIMILARITIES),
    ],
    ids=lambda chosen: "-".join(*chosen.items()),
)
def test_every_encoder_head_and_similarity_trains_on_a_gpu_with_one_read_per_step(pairs, chosen):
    assert_steps_read_once(pairs, shape(**chosen))


@pytest.mark.parametrize("loss", MINERS)
def test_every_loss_trains_on_a_gpu_with_one_read_per_step(pairs, loss):
    phase = MatchingPhase(loss, 0.2, 0.01, epochs=1, patience=1)
    assert_steps_read_once(pairs, shape(), phase)


@pytest.mark.parametrize("clip_by", CLIPS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_steps_on_a_gpu_with_one_read_per_step(pairs, name, clip_by):
    optimizer = partial(OPTIMIZERS[name], settings=settings_of(name))
    assert_steps_read_once(pairs, shape(), optimizer=optimizer, clip_by=clip_by)


def test_two_terms_and_classes_train_on_a_gpu_with_one_read_per_step(pairs):
    objective = Objective("max_hinge", LossChoices(reduce="mean"), 0.5, 2.0, 1.0, 0.1)
    own = InstanceLoss(classes=0, dropout=0.5, bias=True, bias_rate=2.0)
    schedule = Schedule([Phase("both", 0.01, 1, 1)], 0, optimizer(), 2.0, "global", 0)
    with pretended_gpu() as gpu:
        classes = Classes(new_instance(10, 8, own, seed=0).to(CUDA), class_numbers(pairs.image_ids))
        matcher = new_matcher(shape("dual_path", "text_cnn"), seed=0).to(CUDA)
        made = Trainer(MatchingTask(matcher, [objective], matching_data(pairs), classes=classes), schedule)
        batches = made.task.batches(0)
        steps = [made.step(batch) for batch in batches]
    assert gpu.downloads == len(batches) > 1
    errors = {f"{task.IMAGE_CLASSES}_error", f"{task.TEXT_CLASSES}_error"}
    assert set(steps[0][1]) == {"max_hinge", task.IMAGE_CLASSES, task.TEXT_CLASSES} | errors


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["captioner", "tagger"])
def test_captioners_and_taggers_train_on_a_gpu_with_one_read_per_step(tmp_path, kind, dropout):
    if kind == "captioner":
        captions.write_world(tmp_path)
        settings = captions.settings(tmp_path, learns="jointly", dropout=dropout)
        opened = captions.inputs(tmp_path)
    else:
        tags.write_world(tmp_path, tags.scenes(40))
        settings = tags.settings(learns="jointly", dropout=dropout, batch=10)
        opened = tags.inputs(tmp_path, settings)
    with pretended_gpu() as gpu:
        made = new_task(settings, opened, CUDA)
        trained = Trainer(made, schedule_of(settings, settings.titles()))
        batches = made.batches(0)
        found = [trained.step(batch)[0] for batch in batches]
    assert gpu.downloads == len(batches) > 1
    assert np.isfinite(found).all()


def test_encode_reads_once_per_block(pairs, monkeypatch):
    monkeypatch.setattr(encode, "BLOCK", 4)
    chosen = shape(encoder="lstm")
    expected = torch.cat(list(encode.encode_images(new_matcher(chosen, seed=0), pairs, pairs.image_ids)))
    caption_ids = [each for record in pairs.captioned for each in record.caption_ids]
    with pretended_gpu() as gpu:
        matcher = new_matcher(chosen, seed=0).to(CUDA)
        blocks = list(encode.encode_images(matcher, pairs, pairs.image_ids))
        assert gpu.downloads == len(blocks) == 3
        blocks_of_captions = list(encode.encode_captions(matcher, pairs, caption_ids))
        assert gpu.downloads == len(blocks) + len(blocks_of_captions)
        assert {each.device.type for each in (*blocks, *blocks_of_captions)} == {"cpu"}
    torch.testing.assert_close(torch.cat(blocks), expected)  # products of a CPU round otherwise


def store(path, ids, seed):
    rows = np.random.default_rng(seed).normal(size=(len(ids), 6)).astype(np.float32)
    write_rows(path, "vectors", [Layer("joint", 6)], "float32", [(0, ids, rows)], {}, {})
    return Rows.open(path)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_evaluate_reads_once_per_block_of_scores(tmp_path, monkeypatch, similarity):
    monkeypatch.setattr(ranks, "BLOCK", 16)
    captioned = [Captioned(f"{number}", "test", ("x", "y"), ()) for number in range(40)]
    images = store(tmp_path / "images", [each.id for each in captioned], 0)
    of_captions = store(tmp_path / "captions", [name for each in captioned for name in each.caption_ids], 1)
    arguments = [captioned], images, of_captions, SIMILARITIES[similarity], 3
    expected = evaluate(*arguments, torch.device("cpu")).arrays()
    with pretended_gpu() as gpu:
        found = evaluate(*arguments, CUDA).arrays()
    assert gpu.downloads == 3 * 3
    assert found["image_ranks"].tolist() == expected["image_ranks"].tolist()
    assert found["caption_best"].tolist() == expected["caption_best"].tolist()


# Broken on purpose: each of these must be found.


@pytest.mark.parametrize("uploads", [encode, task], ids=["batch", "mask"])
def test_a_batch_or_a_mask_that_stays_on_the_cpu_is_found(pairs, monkeypatch, uploads):
    monkeypatch.setattr(uploads, "upload", lambda tensor, device: tensor)
    with pretended_gpu(), pytest.raises(MixedDevicesError):
        losses_of_steps(pairs, CUDA, shape())


def test_a_gradient_that_meets_a_tensor_of_the_cpu_is_found():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, values):
            return values * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * torch.full((3,), 2.0)

    with pretended_gpu():
        values = torch.ones(3, device=CUDA, requires_grad=True)
        loss = Scaled.apply(values).sum()
        with pytest.raises(MixedDevicesError):
            loss.backward()


def test_a_read_in_the_loss_is_found(pairs, monkeypatch):
    original = MatchingTask._rank

    def rank(self, *arguments):
        ranking = original(self, *arguments)
        return ranking if ranking > 0 else ranking * 1

    monkeypatch.setattr(MatchingTask, "_rank", rank)
    with pretended_gpu(), pytest.raises(HostReadError, match="_local_scalar_dense"):
        losses_of_steps(pairs, CUDA, shape())


def test_a_second_read_per_step_is_counted(pairs, monkeypatch):
    original = Trainer._require_finite

    def require(self, value, batch, name):
        loop.download(self.parameters[0].sum())
        original(self, value, batch, name)

    monkeypatch.setattr(Trainer, "_require_finite", require)
    with pretended_gpu() as gpu:
        found = losses_of_steps(pairs, CUDA, shape())
    assert gpu.downloads == 3 * len(found)


@pytest.mark.parametrize(
    "read",
    [
        lambda values: values.sum().item(),
        lambda values: float(values.sum()),
        lambda values: [each for each in values if each > 0],
        lambda values: values.tolist(),
        lambda values: values.cpu(),
        lambda values: values.to("cpu"),
        lambda values: torch.zeros(3).copy_(values),
        lambda values: values[values > 0],
        lambda values: values.nonzero(),
        lambda values: torch.unique(values),
        lambda values: torch.equal(values, values),
    ],
)
def test_every_kind_of_read_is_found(read):
    with pretended_gpu(), pytest.raises(HostReadError):
        read(torch.ones(3, device=CUDA))


@pytest.mark.parametrize(
    "mix",
    [
        lambda values: values + torch.ones(3),
        lambda values: torch.cat([values, torch.ones(3)]),
        lambda values: values[torch.arange(2)],
        lambda values: torch.ones(3).mul_(values.sum()),
        lambda values: torch.rand(3, device=CUDA, generator=torch.Generator()),
        lambda values: values.uniform_(generator=torch.Generator()),
    ],
)
def test_every_kind_of_mixed_devices_is_found(mix):
    with pretended_gpu(), pytest.raises(MixedDevicesError):
        mix(torch.ones(3, device=CUDA))


def test_tensors_of_the_pretended_gpu_say_so_and_have_true_values():
    with pretended_gpu() as gpu:
        values = torch.arange(4.0).to(CUDA)
        assert values.device == GPU
        assert values.is_cuda
        assert values.view(2, 2).T.device == (values * 2).device == torch.zeros_like(values).device == GPU
        assert torch.tensor([1.0], device=CUDA).device == GPU
        assert torch.zeros(3).device.type == "cpu"
        with pytest.raises(TypeError, match="on the GPU"):
            values.numpy()
        assert gpu.download(values + 1).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert gpu.downloads == 1
