"""The files of deploy/, as far as this machine can tell."""

import re
import shlex
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


def test_the_units_find_the_programs_that_flower_starts_by_name():
    for unit in DEPLOY.glob("*.service"):
        (path,) = re.findall(r"^Environment=PATH=(.*)$", unit.read_text(), re.MULTILINE)
        assert path.split(":")[0] == "/opt/fedres/bin"
        path = path.replace("/opt/fedres/bin", str(Path(sys.executable).parent))
        for program in ("flower-superexec", "flwr-serverapp", "flwr-clientapp"):
            assert shutil.which(program, path=path)


def test_the_superlink_listens_to_its_own_machine_alone():
    text = (DEPLOY / "fedres-superlink.service").read_text()
    assert "--host 127.0.0.1 " in text
    assert "--enable-supernode-auth" in text
    assert "0.0.0.0" not in text


def test_containers_run_the_commands_of_the_units_and_only_nginx_is_published():
    yaml = pytest.importorskip("yaml")
    services = {}
    for name in ("compose.yaml", "compose-node.yaml"):
        services |= yaml.safe_load((DEPLOY / name).read_text())["services"]
    assert [name for name, service in services.items() if "ports" in service] == ["nginx"]
    assert services["superlink"]["network_mode"] == "service:nginx"
    for unit, service in (("fedres-superlink", "superlink"), ("fedres-node", "node")):
        text = (DEPLOY / f"{unit}.service").read_text().split("ExecStart=/opt/fedres/bin/")[1]
        wanted = shlex.split(text.replace("\\\n", " ").split("\n", 1)[0])
        command = services[service]["command"]
        found = shlex.split(command) if isinstance(command, str) else command
        assert " ".join(found).replace("=", " ") == " ".join(wanted).replace("=", " ")


def test_the_gate_names_all_calls_of_a_node_and_no_other():
    from flwr.superlink.routers.fleet.router import router

    calls = {route.path.removeprefix("/v1/fleet/") for route in router.routes}
    (listed,) = re.findall(r"\^/v1/fleet/\(([a-z|-]+)\)\$", (DEPLOY / "nginx.conf").read_text())
    assert set(listed.split("|")) == calls - {"register-node", "unregister-node"}
