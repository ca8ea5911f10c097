"""Files that are whole or not there, and folders that one process at a time works in."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from fedres.core import files
from fedres.core.files import locked, whole_file


def put(path, data):
    with whole_file(path) as file:
        file.write(data)


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    put(tmp_path / "state", b"old")
    with pytest.raises(KeyboardInterrupt), whole_file(tmp_path / "state") as file:  # noqa: PT012
        file.write(b"ne")
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert (tmp_path / "state").read_bytes() == b"old"


def test_all_of_it_is_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    def synced(handle):
        seen.append((os.fstat(handle).st_size, (tmp_path / "state").exists()))

    seen = []
    monkeypatch.setattr(os, "fsync", synced)
    put(tmp_path / "state", b"all")
    assert seen[0] == (3, False)
    assert [there for _, there in seen] == [False, True]  # the file, then the folder


def test_windows_opens_no_folders(tmp_path, monkeypatch):
    of_windows = SimpleNamespace(name="nt", fsync=os.fsync, replace=os.replace)
    monkeypatch.setattr(files, "os", of_windows)
    put(tmp_path / "state", b"all")
    assert (tmp_path / "state").read_bytes() == b"all"


def test_nothing_that_keeps_state_needs_fcntl():
    code = """if True:
        import sys
        sys.modules["fcntl"] = None  # as on Windows
        import fedres.core.files, fedres.flower.server_state, fedres.flower.client_state
        import fedres.tables.storage
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_one_process_at_a_time_in_a_folder(tmp_path):
    with locked(tmp_path):
        second = locked(tmp_path, patience=0)
        with pytest.raises(ValueError, match="another process"):
            second.__enter__()
    with locked(tmp_path, patience=0):
        pass


def test_the_lock_of_a_killed_process_is_free_at_once(tmp_path):
    code = """if True:
        import sys, time
        from pathlib import Path
        from fedres.core.files import locked
        with locked(Path(sys.argv[1])):
            print("in", flush=True)
            time.sleep(60)
    """
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"in\n"
        second = locked(tmp_path, patience=0)
        with pytest.raises(ValueError, match="another process"):
            second.__enter__()
        other.kill()
        other.wait()
    with locked(tmp_path, patience=0):
        pass
