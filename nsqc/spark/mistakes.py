"""Options proved wrong by a node's answer: errors that no retry solves, in terms of the options."""

from __future__ import annotations

from nsqc.client import ClientError
from nsqc.client.errors import AuthError, NotOffered, Refused, WrongPort
from nsqc.client.lookup import NotHttp, fetch
from nsqc.client.trouble import AUTHORITY_HINT, CERTIFICATE_HINT
from nsqc.spark.options import NodeOptions, OptionError
from nsqc.wire.answers import Answer, Service, of_info, wrong_port

SECONDS = 2.0           # explaining an error must not delay it much
MOST_BYTES = 1 << 20    # of an answer
OPTION, FLAG = "{}=", "--{} "       # an option's form: for a data source, and for a job


def of_nsqd(error: ClientError, address: str, options: NodeOptions) -> OptionError | None:
    """The mistake behind an error of an nsqd's TCP port; None: a retry may succeed."""
    if isinstance(error, AuthError) and "requires TLS" in error.text:
        return OptionError(f"nsq: {address}: TLS required, as authSecret is not sent in clear text: give tls=true")
    if isinstance(error, AuthError):
        return OptionError(f"nsq: {address}: {error.text}: {secret_hint(options)}")
    if isinstance(error, Refused):
        return OptionError(f"nsq: {error}: give tls=true") if "TLS required" in error.text else None
    if isinstance(error, NotOffered):
        setting = "tls=true" if error.feature == "tls" else f"compression={error.feature}"
        return OptionError(f"nsq: {error}: omit {setting}")
    if isinstance(error, WrongPort):
        found = service_at(address)
        return OptionError(f"nsq: {error if found is None else right_port(address, found, Service.NSQD_TCP)}")
    return None


def secret_hint(options: NodeOptions) -> str:
    """The remedy if a node refuses a call for lack of permission."""
    return "option authSecret does not permit it" if options.authSecret else "give option authSecret"


def in_options(text: str) -> str:
    """The text of a client's error about certificates, with the options of the data sources."""
    return (text.replace(CERTIFICATE_HINT, "give one by tlsCertFile and tlsKeyFile")
            .replace(AUTHORITY_HINT, "give others by tlsCaFile"))


# Jobs' names of the options in errors.
FLAGS = (("tls=true", "--tls"), ("option authSecret", "--auth-secret"), ("tlsCaFile", "--tls-ca-file"),
         ("tlsCertFile", "--tls-cert-file"), ("tlsKeyFile", "--tls-key-file"), ("option http", "--http"),
         ("nsqlookupd=", "--nsqlookupd "), ("nsqd=", "--nsqd "))


def in_flags(text: str) -> str:
    """A data source's error text for the users of a job."""
    if not text.startswith("nsq: "):
        return text
    for option, flag in FLAGS:
        text = text.replace(option, flag)
    return text.removeprefix("nsq: ")


def service_at(address: str) -> Answer | None:
    """The service that answers at an address; None: unknown."""
    try:
        return of_info(fetch(address, "/info", SECONDS, MOST_BYTES)[1])
    except NotHttp as error:
        return error.found
    except (OSError, ValueError):
        return None


def right_port(address: str, found: Answer, wanted: Service, form: str = OPTION) -> str:
    """The text for an address with one service where another is needed, with the option to give."""
    host, nsqd, nsqlookupd = address.rpartition(":")[0], form.format("nsqd"), form.format("nsqlookupd")
    at_nsqd = wanted is Service.NSQD_TCP
    if found.service is Service.NSQD_HTTP and found.tcp_port:
        give = "give its TCP port" if at_nsqd else "give nsqlookupd's, or"
        return f"{address} is the HTTP port of an nsqd: {give}{',' * at_nsqd} {nsqd}{host}:{found.tcp_port}"
    if found.service is Service.LOOKUPD_HTTP:
        return f"{address} is the HTTP port of an nsqlookupd: give it as {nsqlookupd}{address}"
    if found.service is Service.NSQD_TCP and not at_nsqd:
        return f"{address} is the TCP port of an nsqd: give it as {nsqd}{address}"
    if found.service is Service.LOOKUPD_TCP:
        return f"{address} is the TCP port of an nsqlookupd: give {nsqlookupd}{host}:PORT of HTTP, 4161 by default"
    if found.service is Service.FOREIGN_HTTP and at_nsqd:
        return f"{address} is an HTTP server, but not an nsqd: give nsqd's TCP port, 4150 by default"
    return f"{address}: {wrong_port(found, wanted)}"
