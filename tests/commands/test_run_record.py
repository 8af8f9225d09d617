import errno

import pytest

from longsum_jax.commands.run_record import _errors_reported


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (KeyError("loss"), "KeyError: 'loss'; please report it"),
    ],
)
def test_an_error_of_a_page_does_not_stop_a_training(tmp_path, capsys, error, reason):
    with _errors_reported(tmp_path / "report.html"):
        raise error
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{tmp_path / 'report.html'}: not written (")
    assert line.endswith(f"{reason}); the training goes on")


def test_an_interruption_is_no_error_of_a_page(tmp_path):
    with pytest.raises(KeyboardInterrupt), _errors_reported(tmp_path / "report.html"):
        raise KeyboardInterrupt
