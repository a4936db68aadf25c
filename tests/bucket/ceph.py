"""A real store: Ceph's S3 gateway before one monitor and one store in memory, on loopback."""

import http.client
import shutil
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from tests.bucket.s3 import SECRET
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port

PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "monmaptool")
CONF = """[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{mon}]
mon_initial_members = a
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
public_network = 127.0.0.0/8
cluster_network = 127.0.0.0/8
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_msgr1 = false
ms_mon_client_mode = crc
log_file = {folder}/$name.log
admin_socket =
run_dir = {folder}
mon_data = {folder}/mon
mon_data_avail_warn = 1
mon_data_avail_crit = 0
mon_allow_pool_size_one = true
osd_data = {folder}/osd
osd_objectstore = memstore
memstore_device_bytes = 4294967296
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pgp_num = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
rgw_data = {folder}/rgw
rgw_frontends = beast endpoint=127.0.0.1:{port}
rgw_enable_usage_log = false
rgw_dns_name = localhost
"""


class Ceph:
    """Its port has a bucket `acme` of a user `key`."""

    def __init__(self, folder: Path) -> None:
        if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
            pytest.skip(f"needs {missing[0]} (Debian: apt-get install --no-install-recommends ceph-mon ceph-osd radosgw)")
        self.folder, self.port = folder, free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            self.make()
        except BaseException:
            self.close()
            raise

    def make(self) -> None:
        folder = self.folder
        fsid, mon = str(uuid.uuid4()), free_port()
        for name in "mon", "osd", "rgw":
            (folder / name).mkdir()
        (folder / "ceph.conf").write_text(CONF.format(fsid=fsid, mon=mon, port=self.port, folder=folder))
        self.run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{mon}]", folder / "monmap")
        self.run("ceph-mon", "--mkfs", "-i", "a", "--monmap", folder / "monmap")
        self.start("ceph-mon", "-i", "a")
        osd = str(uuid.uuid4())
        number = self.run("ceph", "osd", "new", osd).strip()
        self.run("ceph-osd", "-i", number, "--mkfs", "--osd-uuid", osd)
        self.start("ceph-osd", "-i", number)
        self.run("radosgw-admin", "user", "create", "--uid=nsqc", "--display-name=nsqc", "--access-key=key", f"--secret={SECRET}")
        self.start("radosgw", "-n", "client.rgw")
        end = time.monotonic() + WAIT_SECONDS
        while not self.is_up():
            assert time.monotonic() < end, "the gateway does not answer"
            time.sleep(0.2)
        import boto3  # here: it takes half a second, and most tests need none

        boto3.client("s3", endpoint_url=f"http://127.0.0.1:{self.port}", region_name="us-east-1", aws_access_key_id="key",
                     aws_secret_access_key=SECRET).create_bucket(Bucket="acme")

    def run(self, *words: object) -> str:
        done = subprocess.run([*map(str, words), "-c", str(self.folder / "ceph.conf")], cwd=self.folder, timeout=WAIT_SECONDS,
                              capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def start(self, *words: str) -> None:
        with open(self.folder / f"{words[0]}.out", "wb") as out:
            self.processes.append(subprocess.Popen([*words, "-f", "-c", str(self.folder / "ceph.conf")], cwd=self.folder,
                                                   stdout=out, stderr=subprocess.STDOUT))

    def is_up(self) -> bool:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            connection.request("GET", "/")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def close(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(WAIT_SECONDS)
