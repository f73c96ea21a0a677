from fne.core.processes import ALONE
from fne.finetuning import run
from fne.finetuning.matching import parts_of_validation, schedule_of
from fne.finetuning.settings import Finetune
from fne.training.loop import Trainer
from tests.support.finetuning import small_task


def test_the_announced_time_has_the_mining_and_all_validations_and_changes_nothing(tmp_path, monkeypatch):
    """Every image that the network sees takes a second, and every caption that is read takes ten."""
    task, clock = small_task(tmp_path), [0.0]
    settings = Finetune.model_validate({"epochs": [2, 1], "learning_rate": [0.05, 0.01], "batch": 6})
    before = {name: value.clone() for name, value in task.trained.state_dict().items()}
    for module, seconds in ((task.source.network, 1), (task.matcher.text_encoder, 10)):

        def pass_time(_, arguments, __, seconds=seconds):
            clock[0] += seconds * len(arguments[0])

        module.register_forward_hook(pass_time)
    monkeypatch.setattr(run.time, "perf_counter", lambda: clock[0])
    parts = list(parts_of_validation(task, settings.batch, ALONE))
    plan = run.Plan(task, task.source, schedule_of(settings), {}, {}, 6, 6, parts)
    announced = run.seconds_of(plan)
    assert all((value == before[name]).all() for name, value in task.trained.state_dict().items())
    started = clock[0]
    Trainer(task, schedule_of(settings)).train()
    assert announced == clock[0] - started == 3 * 2 * (6 + 10 * (6 + 4)) + 4 * (12 + 10 * 24)
