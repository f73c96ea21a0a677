import re
import shutil

from click.testing import CliRunner

from fne.core.files import text_digest
from fne.report.record import page_artifact
from fne.store.checksums import parse_metrics
from stages.tuned_page import main
from tests.support.report import FULL, TUNED, TUNED_MODEL, rewrite, write_history, write_run, write_tuning


def report(run):
    return CliRunner().invoke(main, run.tuned_arguments)


def text_of(run):
    result = report(run)
    assert result.exit_code == 0, result.output
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", run.page))


def tuned_lineage(**settings):
    return FULL | {TUNED: {"digest": TUNED_MODEL, "settings": {"keep": "last", "best_epoch": 2} | settings}}


def test_a_fine_tuned_run_shows_the_curves_of_both_training_runs_and_which_weights_were_evaluated(tmp_path):
    run = write_run(tmp_path, more=tuned_lineage())
    write_history(tmp_path, {"val/rsum": [310.0, 320.0]})
    write_tuning(tmp_path, [318.0, 330.0, 327.5], best_epoch=2)
    text = text_of(run)
    assert "The weights of the best epoch on the validation split are the ones that the fine-tuning" in text
    assert "Validation rsum 318.0 before, 327.5 after epoch 2 of 2, with one crop per image. " in text
    assert "The weights of the last epoch are the ones evaluated here." in text
    # The start is epoch 0, and the loss has no value there.
    assert "Validation rsum: epoch 0: 318; epoch 1: 330; epoch 2: 327.5" in run.page
    assert "Training loss per image: epoch 1: 1; epoch 2: 0.5" in run.page


def test_the_page_compares_both_models_and_records_that_it_is_that_of_the_tuned_one(tmp_path):
    run = write_run(tmp_path, more=tuned_lineage())
    write_tuning(tmp_path, [318.0, 330.0, 327.5], best_epoch=2)
    text = text_of(run)
    rsum = parse_metrics((tmp_path / "retrieval.json").read_bytes())["test_full"]["rsum"]
    assert f" rsum {rsum:.1f} {rsum:.1f} +0.0 +0.0 to +0.0 " in text  # the same ranks
    assert page_artifact(tmp_path / "index.html").name == "tuned_page"


def test_ranks_of_another_model_before_are_refused_with_both_digests(tmp_path):
    run = write_run(tmp_path, more=tuned_lineage())
    write_tuning(tmp_path, [318.0, 330.0, 327.5], best_epoch=2)
    other = text_digest("another model")
    write_run(tmp_path / "other", more=FULL | {"model": FULL["model"] | {"digest": other}})
    arguments = run.tuned_arguments
    shutil.copy(tmp_path / "other/ranks.h5", tmp_path / "ranks.h5")
    message = CliRunner().invoke(main, arguments).stderr
    assert f"/ranks.h5 was made from model {other[:12]}…, but {tmp_path}/tuned_ranks.h5 was made" in message


def test_a_fine_tuned_run_is_not_called_stuck_because_the_training_before_it_was(tmp_path):
    stuck = FULL["model"] | {"settings": {"loss": ["max_hinge"], "started": False}}
    run = write_run(tmp_path, more=tuned_lineage() | {"model": stuck})
    write_tuning(tmp_path, [260.0, 330.0, 500.0], best_epoch=2)
    assert "did not start" not in text_of(run)
    write_tuning(tmp_path, [260.0, 255.0, 257.0], best_epoch=2, started=False)
    text = text_of(run)
    assert "after the fine-tuning, the validation rsum of 257.0 is not clearly above chance (250.0). " in text
    assert "Train longer before it (train.epochs), or lower finetune.learning_rate" in text


def test_the_metrics_of_another_fine_tuning_are_refused(tmp_path):
    run = write_run(tmp_path, more=tuned_lineage())
    write_tuning(tmp_path, [318.0, 330.0, 327.5], best_epoch=1)
    place = f"Error: {tmp_path}/tuning.json has the "
    assert f"{place}best epoch 1, but the model that was evaluated has 2; run" in report(run).stderr
    write_tuning(tmp_path, [318.0, 330.0, 327.5], best_epoch=2)
    rewrite(tmp_path / "tuning.json", "327.5", "555.5")
    other = f"validation rsum 555.5, but {tmp_path}/tuning has 327.5 in epoch 2; run `dvc repro finetune`"
    assert place + other in report(run).stderr


def test_the_history_of_another_fine_tuning_is_refused_with_both_digests(tmp_path):
    untuned = write_run(tmp_path / "untuned", more=FULL)
    write_tuning(tmp_path / "untuned", [318.0, 330.0], best_epoch=1)
    model = FULL["model"]["digest"]
    message = report(untuned).stderr
    assert f"untuned/tuned_ranks.h5 was made from model {model[:12]}…, but " in message
    assert f"untuned/tuning was made from tuned {TUNED_MODEL[:12]}…; run `dvc repro`" in message
    tuned = write_run(tmp_path / "tuned", more=tuned_lineage())
    write_history(tmp_path / "tuned", {"val/rsum": [1.0]}, text_digest("other"), "tuning", TUNED)
    assert f"ranks.h5 was made from tuned {TUNED_MODEL[:12]}…, but " in report(tuned).stderr
