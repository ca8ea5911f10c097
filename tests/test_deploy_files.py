"""The files of deploy/, as far as this machine can tell."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[1] / "deploy"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze reads units")
def test_systemd_takes_the_units(tmp_path):
    units = sorted(DEPLOY.glob("*.service"))
    assert units
    for unit in units:
        text = unit.read_text().replace("/opt/fedres/bin", str(Path(sys.executable).parent))
        (tmp_path / unit.name).write_text(text)
    command = ["systemd-analyze", "verify", *(str(tmp_path / unit.name) for unit in units)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not [line for line in done.stderr.splitlines() if "fedres" in line], done.stderr
    assert done.returncode == 0, done.stderr


def test_the_superlink_listens_to_its_own_machine_alone():
    text = (DEPLOY / "fedres-superlink.service").read_text()
    assert "--host 127.0.0.1 " in text
    assert "--enable-supernode-auth" in text
    assert "0.0.0.0" not in text
