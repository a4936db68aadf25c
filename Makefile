# Every developer command. `make run` and `make test` set everything up by themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find nsqc -name '*.pyx' -o -name '*.pxd')
ARGS ?=

.DEFAULT_GOAL := build
.PHONY: build debug annotate run test unit e2e debug-test asan lint bench load ways pages dist clean check-system check-tests

check-system:
	@command -v $(PYTHON) >/dev/null || { echo "nsqc needs Python 3.11 or later: install python3 (Debian: apt-get install python3 python3-venv python3-dev)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "nsqc needs Python 3.11 or later, $(PYTHON) is older: set PYTHON=python3.11 or install it"; exit 1; }
	@command -v $${CC:-cc} >/dev/null || { echo "nsqc needs a C compiler: install gcc (Debian: apt-get install gcc libc6-dev)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "nsqc needs Python's venv module: Debian: apt-get install python3-venv"; exit 1; }
	@test -f "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || { echo "nsqc needs Python's C headers: Debian: apt-get install python3-dev"; exit 1; }

check-tests:
	@command -v node >/dev/null && command -v npm >/dev/null || { echo "the tests drive nsqjs and need node and npm (Debian: apt-get install nodejs npm)"; exit 1; }
	@echo '#include <openssl/ssl.h>' | $${CC:-cc} -E - >/dev/null 2>&1 && echo '#include <zlib.h>' | $${CC:-cc} -E - >/dev/null 2>&1 || { echo "the tests of the load client need OpenSSL's and zlib's headers (Debian: apt-get install libssl-dev zlib1g-dev)"; exit 1; }
	@$${JAVA_HOME:+$$JAVA_HOME/bin/}java -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' || { echo "the tests drive Spark and need Java 17 or later (Debian: apt-get install openjdk-17-jre-headless)"; exit 1; }
	@command -v openssl >/dev/null || { echo "the tests of TLS need the openssl command (Debian: apt-get install openssl)"; exit 1; }

# The environment, made anew when the requirements change.
$(VENV)/.ready: pyproject.toml
	@$(MAKE) --no-print-directory check-system
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/pip install --quiet --disable-pip-version-check 'setuptools>=77' 'cython>=3.1,<4' $$($(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*(p["dependencies"] + p["optional-dependencies"]["test"] + p["optional-dependencies"]["lint"]))')
	@touch $@

# The extensions, compiled in place.
$(VENV)/.built-%: $(VENV)/.ready setup.py $(SOURCES)
	@rm -f $(VENV)/.built-*
	@find nsqc -name '*.so' -delete
	NSQC_BUILD=$* $(BIN)/python setup.py --quiet build_ext --inplace --parallel 2 >build-$*.log 2>&1 || { cat build-$*.log; exit 1; }
	@rm -f build-$*.log
	@touch $@

build: $(VENV)/.built-release            ## compile in place, optimised
debug: $(VENV)/.built-debug              ## compile with checks, tracing and live-object counters

annotate: $(VENV)/.ready                 ## Cython's annotated C beside each .pyx
	NSQC_ANNOTATE=1 $(BIN)/python setup.py --quiet build_ext --inplace --force

run: build                               ## start the daemon; ARGS="--mem-queue-size=0 ..." for nsqd's flags
	@mkdir -p data
	@exec $(BIN)/python -m nsqc serve --data-path=data $(ARGS)

test: check-tests lint build                         ## all tests, then those of the compiled rooms in the debug build
	$(BIN)/python -m pytest $(ARGS)
	@$(MAKE) --no-print-directory debug-test
	@$(MAKE) --no-print-directory build

unit: build                              ## without daemons
	$(BIN)/python -m pytest tests --ignore=tests/e2e --ignore=tests/conformance $(ARGS)

e2e: build                               ## real daemons, real clients
	$(BIN)/python -m pytest tests/e2e tests/conformance $(ARGS)

debug-test: debug                        ## leaks and bounds: the compiled rooms with checks and counters
	NSQC_BUILD=debug $(BIN)/python -m pytest tests/wire tests/store tests/broker tests/tcp tests/leaks tests/e2e/test_messages.py -q

asan:                                    ## the compiled rooms and real daemons under AddressSanitizer
	@$(MAKE) --no-print-directory $(VENV)/.built-asan
	LD_PRELOAD=$$($${CC:-cc} -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=2 \
		$(BIN)/python -m pytest tests/wire tests/store tests/broker tests/tcp tests/leaks tests/peers/test_auth.py tests/e2e/test_messages.py tests/e2e/test_fuzz.py -q
	@$(MAKE) --no-print-directory build

bench: build                             ## ns for each operation of each compiled module
	$(BIN)/python -m perf.micro.run $(ARGS)

load: build                              ## the whole daemon beside a floor; figures as in perf/RESULTS.md
	$(BIN)/python -m perf.load.run $(ARGS)

ways: build                              ## rates over TLS, deflate and snappy beside plain
	$(BIN)/python -m perf.ways.run $(ARGS)

pages: build                             ## docs/options.md, from nsqc/options.py
	$(BIN)/python -m nsqc.pages docs

lint: $(VENV)/.ready                     ## ruff and cython-lint
	$(BIN)/ruff check .
	PATH="$(BIN):$$PATH" $(BIN)/cython-lint nsqc

clean:                                   ## everything that was built
	rm -rf build dist $(VENV)/.built-* nsqc.egg-info
	find nsqc \( -name '*.so' -o -name '*.html' -o -name '__pycache__' \) -prune -exec rm -rf {} +

dist: $(VENV)/.ready                     ## sdist and wheel in dist/
	$(BIN)/pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build --outdir dist .
