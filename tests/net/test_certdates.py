"""Certificates that have expired, or soon will: the log, config check, /readyz and a metric say so. And weak ones."""

import json
import re
import ssl
import subprocess
import sys
import time

import pytest

from nsqc.net.tls import CertificateDate, CertificateFile, TlsError, TlsSettings, build_context, read_dates
from tests.support.admin import AdminServer
from tests.support.daemon import wait_until
from tests.support.secure import openssl, self_signed

NSQC = (sys.executable, "-m", "nsqc")


def expired(folder, name) -> None:
    """Writes NAME.pem, of 2024, and NAME.key. openssl req cannot set dates."""
    self_signed(folder, name, name)
    subprocess.run(["openssl", "req", "-new", "-key", folder / f"{name}.key", "-subj", "/CN=localhost", "-out", folder / "csr"], check=True)
    (folder / "index").touch()
    (folder / "ca.cnf").write_text(f"""[ca]\ndefault_ca = x\n[x]\ndatabase = {folder}/index\nnew_certs_dir = {folder}\nrand_serial = yes
default_md = sha256\npolicy = p\nx509_extensions = e\n[p]\ncommonName = supplied\n[e]\nsubjectAltName = DNS:localhost,IP:127.0.0.1\n""")
    subprocess.run(["openssl", "ca", "-batch", "-selfsign", "-config", folder / "ca.cnf", "-keyfile", folder / f"{name}.key", "-in", folder / "csr",
                    "-startdate", "20240101000000Z", "-enddate", "20240201000000Z", "-notext", "-out", folder / f"{name}.pem"],
                   check=True, capture_output=True)


def end_of(path) -> float:
    """According to openssl."""
    out = subprocess.run(["openssl", "x509", "-in", path, "-noout", "-enddate", "-dateopt", "iso_8601"], capture_output=True, text=True, check=True).stdout
    text = out.strip().removeprefix("notAfter=").rstrip("Z")
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S")) - time.timezone


@pytest.mark.parametrize("days", [0, 5, 20_000])
def test_the_end_of_a_certificate(tmp_path, days):
    if days:
        self_signed(tmp_path, "a", "a", days)
    else:
        expired(tmp_path, "a")
    found = read_dates([CertificateFile("--x", str(tmp_path / "a.pem"))])
    assert found == [CertificateDate("--x", str(tmp_path / "a.pem"), end_of(tmp_path / "a.pem"))]
    now = time.time()
    assert bool(found[0].concern(now)) is (days < 30)
    assert ("expired on 2024-02-01 00:00 UTC" in found[0].concern(now)) is (not days)


def test_files_with_several_certificates(tmp_path):
    for name, days in (("a", 90), ("b", 40)):
        self_signed(tmp_path, name, name, days)
    both = tmp_path / "both.pem"
    both.write_text("comment\n" + (tmp_path / "a.pem").read_text() + (tmp_path / "a.key").read_text() + (tmp_path / "b.pem").read_text())
    ends = [read_dates([CertificateFile("--x", str(both), authorities)])[0].ends for authorities in (False, True)]
    assert ends == [end_of(tmp_path / "b.pem"), end_of(tmp_path / "a.pem")]


@pytest.mark.parametrize("content", [b"", b"x", b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n",
                                     b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"])
def test_files_without_certificates(tmp_path, content):
    (tmp_path / "x.pem").write_bytes(content)
    assert read_dates([CertificateFile("--x", str(tmp_path / "x.pem")), CertificateFile("--y", str(tmp_path)), CertificateFile("--z", "")]) == []


def details(node) -> list[str]:
    return json.loads(node.http("GET", "/readyz")[1]).get("details", [])


def test_a_daemon_whose_certificate_expires(daemon, tmp_path):
    self_signed(tmp_path, "server", "localhost", 5)
    path = tmp_path / "server.pem"
    node = daemon(f"--tls-cert={path}", f"--tls-key={tmp_path}/server.key")
    assert f"WARNING: TLS: --tls-cert: {path} expires on " in node.log_path.read_text()
    assert node.http("GET", "/readyz")[0] == 200 and re.match(rf"--tls-cert: {path} expires on \d", details(node)[0])
    sample = re.search(r'^nsqc_certificate_expiry_seconds\{file="tls-cert"\} (\S+)$', node.http("GET", "/metrics")[1].decode(), re.MULTILINE)
    assert float(sample[1]) == end_of(path)
    self_signed(tmp_path, "server", "localhost", 60)
    wait_until(lambda: not details(node))


@pytest.mark.parametrize("of", ["daemon", "admin"])
def test_config_check(tmp_path, of):
    expired(tmp_path, "a")
    file = tmp_path / "x.cfg"
    names = ("tls_cert", "tls_key") if of == "daemon" else ("http_client_tls_cert", "http_client_tls_key")
    file.write_text(f'{names[0]} = "{tmp_path}/a.pem"\n{names[1]} = "{tmp_path}/a.key"\n'
                    + (f'data_path = "{tmp_path}"\n' if of == "daemon" else 'nsqd_http_addresses = ["127.0.0.1:1"]\n'))
    done = subprocess.run([*NSQC, "config", "check", *(["--admin"] if of == "admin" else []), str(file)], capture_output=True, text=True)
    assert done.returncode == 0 and re.search(rf"warning: \S+: {tmp_path}/a.pem expired on \d", done.stdout), done


def test_an_admin_server_whose_certificate_has_expired(tmp_path):
    expired(tmp_path, "a")
    admin = AdminServer(tmp_path / "admin.log", "--nsqd-http-address=127.0.0.1:1", f"--http-client-tls-cert={tmp_path}/a.pem",
                        f"--http-client-tls-key={tmp_path}/a.key")
    try:
        wait_until(lambda: f"TLS: --http-client-tls-cert: {tmp_path}/a.pem expired on " in admin.log)
    finally:
        admin.close()


def test_weak_certificates(tmp_path):
    """All servers have one rule, by their oldest version of TLS; the refusal names the fault and what to do."""
    cert, key = tmp_path / "weak.pem", tmp_path / "weak.key"
    openssl("req", "-x509", "-newkey", "rsa:1024", "-sha1", "-nodes", "-days", "60", "-subj", "/CN=weak", "-keyout", key, "-out", cert)
    build_context(TlsSettings(str(cert), str(key), "", "", ssl.TLSVersion.TLSv1))
    with pytest.raises(TlsError, match=f"{cert} is too weak for TLS 1.2 and later: .* --tls-min-version=tls1.0 accepts it"):
        build_context(TlsSettings(str(cert), str(key), "", "", ssl.TLSVersion.TLSv1_2))


def test_clients_name_what_is_wrong_with_a_certificate(daemon, tmp_path):
    """Of a weak one, an expired one, one for another name, and one of an unknown authority."""
    for name, bits, subject in (("weak", 1024, "IP:127.0.0.1"), ("other", 2048, "DNS:elsewhere.example")):
        openssl("req", "-x509", "-newkey", f"rsa:{bits}", "-nodes", "-days", "60", "-subj", "/CN=x", "-addext", f"subjectAltName={subject}",
                "-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.pem")
    expired(tmp_path, "old")
    self_signed(tmp_path, "unknown", "localhost")
    cas = tmp_path / "cas.pem"
    cas.write_text("".join((tmp_path / f"{name}.pem").read_text() for name in ("weak", "old", "other")))
    found = {"weak": "too weak: use SHA-256 and keys of at least 2048 bits, also for its authority", "old": "certificate has expired",
             "other": "it is for another name: ", "unknown": "self-signed certificate; give its authority by --http-client-tls-root-ca-file"}
    nodes = {name: daemon(f"--tls-cert={tmp_path}/{name}.pem", f"--tls-key={tmp_path}/{name}.key") for name in found}
    ports = {name: re.search(r"HTTPS: listening on \S+:(\d+)", node.log)[1] for name, node in nodes.items()}
    admin = AdminServer(tmp_path / "admin.log", *(f"--nsqd-http-address=https://127.0.0.1:{port}" for port in ports.values()),
                        f"--http-client-tls-root-ca-file={cas}")
    try:
        rows = wait_until(lambda: (answer := admin.call("GET", "/api/v1/nodes")).status == 200 and answer.json["nodes"])
        errors = {row["address"]: row["error"] for row in rows}
        for name, text in found.items():
            where = f"127.0.0.1:{ports[name]}"
            assert errors[where].startswith(f"cannot reach {where}: certificate verify failed: ") and text in errors[where]
    finally:
        admin.close()
