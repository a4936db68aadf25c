# All developer commands. `make run` and `make test` set everything up automatically.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find nsqc tests/compiled -name '*.pyx' -o -name '*.pxd')
PLAIN := $(shell find nsqc -name '*.py')
TYPES := $(shell find nsqc -name '*.pyi' -o -name py.typed)
ARGS ?=
# More processes than cores: tests mostly wait. tests/conftest.py distributes them.
PROCESSES := 4
PYTEST = $(CURDIR)/$(BIN)/python -m pytest --numprocesses=$(PROCESSES)

.DEFAULT_GOAL := build
# Byte code is always written: otherwise each daemon started by tests would compile all of nsqc.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: build debug annotate run check test main-test debug-tests lint-tests long-tests package-tests background unit e2e debug-test long-test asan lint bench crash pages dist portable bin deb rpm image release package-test old-test clean check-system check-tests system-packages

check-system:
	@PYTHON="$(PYTHON)" packaging/check.sh

check-tests:
	@PYTHON="$(PYTHON)" packaging/check.sh tests

# As root: installs the Debian packages that this machine lacks for build and tests.
system-packages:
	@lacking=$$(PYTHON="$(PYTHON)" packaging/check.sh packages); \
		if [ -n "$$lacking" ]; then apt-get install $$lacking; else echo "nsqc: this machine lacks no package"; fi

# The requirements in pyproject.toml: `run` are the daemon's own, other names are optional extras.
REQUIREMENTS := $(BIN)/python -c 'import sys, tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*(r for name in sys.argv[1:] for r in (p["dependencies"] if name == "run" else p["optional-dependencies"][name]) if not r.startswith("nsqc[")), sep="\n")'
# Not bin/pip: in a copied environment that script names the original's Python.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The environment, rebuilt when the requirements change.
$(VENV)/.ready: pyproject.toml
	@$(MAKE) --no-print-directory check-system
	@echo "nsqc: making the Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "nsqc: installing Cython and the packages that it stands on into $(VENV)"
	@$(INSTALL) --upgrade pip
	@$(REQUIREMENTS) run tools | $(INSTALL) 'setuptools>=77' 'cython>=3.1,<4' --requirement /dev/stdin
	@touch $@

# Additional requirements of tests; Spark alone is half a gigabyte. Python compiles what they import of it, a tenth.
$(VENV)/.testing: $(VENV)/.ready
	@$(MAKE) --no-print-directory check-tests
	$(REQUIREMENTS) test lint spark | $(INSTALL) --no-compile --requirement /dev/stdin
	@touch $@

# The extensions, optimised, in place.
$(VENV)/.built-release: $(VENV)/.ready setup.py $(SOURCES)
	@find nsqc tests/compiled -name '*.so' -delete
	@NSQC_BUILD=release NSQC_TRANSLATED=$(CURDIR)/build/translated $(BIN)/python packaging/compile.py build-release.log
	@# Also byte code, in case the environment disables it at run time: without it the daemon starts half as fast.
	@$(BIN)/python -m compileall -q nsqc
	@touch $@

# Other builds have their own tree, so the release build stays usable. `cd build/debug/tree` to run one.
build/%/.compiled: $(VENV)/.ready setup.py $(SOURCES)
	@mkdir -p $(@D)
	@NSQC_BUILD=$* $(BIN)/python packaging/compile.py build-$*.log build/$*/tree
	@touch $@

build: $(VENV)/.built-release            ## compile in place, optimised
debug: build/debug/.compiled             ## compile into build/debug/tree with checks and live-object counters
	@$(BIN)/python packaging/tree.py build/debug/tree

# Cython's annotated C beside each .pyx.
annotate: $(VENV)/.ready
	NSQC_ANNOTATE=1 $(BIN)/python setup.py --quiet build_ext --inplace --force

run: build                               ## start the daemon; ARGS="--mem-queue-size=0 ..." for nsqd's flags
	@mkdir -p data
	@exec $(BIN)/python -m nsqc serve --data-path=data $(ARGS)

check: build $(VENV)/.testing            ## quick tests: without Spark, with few daemons
	$(PYTEST) --ignore=tests/packaging -m "check and not long" $(ARGS)

# The tests are idle half of the time: builds run meanwhile, and the tests of a build follow it at once.
test: check-tests                        ## linters and all tests but the long ones; those of the compiled rooms in the debug build
	@$(MAKE) --no-print-directory -j2 $(VENV)/.testing build
	@$(MAKE) --no-print-directory -j3 main-test debug-tests lint-tests

# What takes long and changes rarely: packages, Spark's jobs and clusters, the pages' scripts, benches.
long-test: check-tests                   ## the other tests, and the packages
	@$(MAKE) --no-print-directory -j2 $(VENV)/.testing build
	@$(MAKE) --no-print-directory -j2 long-tests package-tests

# These run once, under more checks and counters than the release build has: what is compiled, and daemons whose clients
# and lives end at any moment.
ROOMS := tests/wire tests/store tests/broker tests/tcp tests/leaks tests/hostile
CHECKED := tests/e2e/test_messages.py tests/e2e/test_kill.py tests/e2e/test_ends.py
ELSEWHERE := $(patsubst %,--ignore=%,tests/packaging $(ROOMS) $(CHECKED))

# Collected once first, so that not every process has to compile all tests.
main-test:
	@$(BIN)/python -m pytest --collect-only -qq $(ELSEWHERE) > /dev/null || true      # the tests report errors
	$(PYTEST) $(ELSEWHERE) -m "not long" $(ARGS)

# Fewer processes: Java and browsers do not wait.
long-tests: PROCESSES := 4
long-tests: build $(VENV)/.testing
	$(PYTEST) --ignore=tests/packaging -m long $(ARGS)

lint-tests:
	@$(MAKE) --no-print-directory GOALS=lint background

debug-tests:
	@$(MAKE) --no-print-directory GOALS=debug background
	@$(MAKE) --no-print-directory --output-sync=target PROCESSES=2 debug-test

# Packages of the existing modules. `make package-test` compiles others, for older systems.
package-tests:
	@$(MAKE) --no-print-directory $(if $(wildcard $(PORTABLE)/ready),,WHEEL=here) GOALS=bin background
	@$(MAKE) --no-print-directory --output-sync=target $(if $(wildcard $(PORTABLE)/ready),,WHEEL=here) package-test

# Compilers yield to tests, which have timeouts. The output is shown on failure.
background:
	@mkdir -p build
	@nice -n 5 $(MAKE) --no-print-directory $(GOALS) > "build/background $(GOALS).log" 2>&1 \
		|| { echo "nsqc: $(GOALS): failed:"; cat "build/background $(GOALS).log"; exit 1; }
	@echo "nsqc: $(GOALS): ready"

# Tests without daemons, and with them.
unit: build $(VENV)/.testing
	$(PYTEST) tests --ignore=tests/e2e --ignore=tests/conformance --ignore=tests/packaging $(ARGS)

e2e: build $(VENV)/.testing
	$(PYTEST) tests/e2e tests/conformance $(ARGS)

debug-test: debug $(VENV)/.testing                       ## leaks and bounds: the compiled rooms with checks and counters
	cd build/debug/tree && NSQC_BUILD=debug $(PYTEST) $(ROOMS) $(CHECKED) -m "not long" -q

# Not test_log_memory: its failing allocator and the sanitizer's cannot both be preloaded first.
asan:                                    ## the compiled rooms and real daemons under AddressSanitizer
	@$(MAKE) --no-print-directory build/asan/.compiled
	@$(BIN)/python packaging/tree.py build/asan/tree
	cd build/asan/tree && LD_PRELOAD=$$($${CC:-cc} -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=2 NSQC_BUILD=debug NSQC_TEST_ENDS=all \
		$(CURDIR)/$(BIN)/python -m pytest $(ROOMS) $(CHECKED) tests/peers/test_auth.py tests/e2e/test_fuzz.py --ignore=tests/broker/test_log_memory.py -q

crash: build                             ## kill -9 at random moments, 1,000 times; ARGS="--rounds 100 --seed 2 --sync fsync", ARGS="--interval 0-6 --seconds 300 --storage all"
	$(BIN)/python -m tests.crash.run $(ARGS)

bench-%: build                           ## a bench of perf/, such as bench-load; perf/RESULTS.md has the list; ARGS="..."
	$(BIN)/python -m perf.$*$(if $(wildcard perf/$*/run.py),.run) $(ARGS)

# A browser; Spark.
bench-admin bench-spark: $(VENV)/.testing

# Other names of benches.
bench: bench-micro
sizes load log-bench stalls scale scrape transports access-bench admin-bench lookupd-bench tools-bench start: FORCE
	@$(MAKE) --no-print-directory bench-$(@:-bench=)
.PHONY: FORCE

pages: build                             ## docs/options.md, and the tables in lookupd.md, admin.md, delivery.md, monitoring.md
	$(BIN)/python -m nsqc.commands.pages docs

lint: $(VENV)/.testing                    ## ruff, cython-lint and mypy
	$(BIN)/ruff check .
	PATH="$(BIN):$$PATH" $(BIN)/cython-lint nsqc tests/compiled
	$(BIN)/python packaging/stubs.py
	$(BIN)/mypy nsqc

clean:                                   ## remove all build results
	rm -rf build dist $(VENV)/.built-* nsqc.egg-info
	find nsqc tests/compiled \( -name '*.so' -o -name '*.html' -o -name '__pycache__' \) -prune -exec rm -rf {} +

# ---------------------------------------------------------------------- packages

# Tools that only packaging needs.
$(VENV)/.packaging: $(VENV)/.ready
	$(REQUIREMENTS) packaging | $(INSTALL) --requirement /dev/stdin
	@touch $@

# A compiler for older systems.
$(VENV)/.compiler: $(VENV)/.ready
	$(REQUIREMENTS) compiler | $(INSTALL) --requirement /dev/stdin
	@touch $@

# Helm as a library, and schemas for checking packages.
$(VENV)/.delivery: $(VENV)/.ready
	$(REQUIREMENTS) delivery | $(INSTALL) --requirement /dev/stdin
	@touch $@

# After `make portable` packages are built with a Python for older systems, otherwise with the environment's.
PORTABLE := build/portable
ifneq ($(wildcard $(PORTABLE)/ready),)
PACKAGER := $(PORTABLE)/venv/bin/python
PACKAGING := $(PORTABLE)/venv/.packaging
else
PACKAGER := $(BIN)/python
PACKAGING := $(VENV)/.packaging
endif

# The oldest Debian on the mirrors.
OLD := bullseye
OLD_TESTS := tests/packaging/test_old_system.py tests/packaging/test_apt.py
DEBIAN_MIRROR ?= http://deb.debian.org

portable: $(VENV)/.packaging $(VENV)/.compiler
	@$(BIN)/python packaging/portable.py

$(PORTABLE)/venv/.packaging: $(PORTABLE)/ready $(VENV)/.packaging $(VENV)/.compiler
	$(REQUIREMENTS) run tools packaging | $(BIN)/python -m pip --python $(PORTABLE)/venv/bin/python install --quiet --disable-pip-version-check 'setuptools>=77' 'cython>=3.1,<4' --requirement /dev/stdin
	@touch $@

# WHEEL=here: uses the modules compiled in place, which is faster. Such packages are for tests on this machine.
WHEEL := old
WHEEL_NEEDS := setup.py pyproject.toml README.md CHANGELOG.md LICENSE MANIFEST.in packaging/wheel.py packaging/compiler.py $(SOURCES) $(PLAIN) $(TYPES)
dist/.wheel-old: $(PACKAGING) $(VENV)/.compiler $(WHEEL_NEEDS)
	@$(BIN)/python packaging/wheel.py --python $(PACKAGER)
	@touch $@

dist/.wheel-here: $(VENV)/.packaging $(VENV)/.built-release $(WHEEL_NEEDS)
	@$(BIN)/python packaging/wheel.py --compiled
	@touch $@

# Wheels for other CPythons and processors: some minutes each.
dist/.wheels: dist/.wheel-old packaging/cross.py
	@$(BIN)/python packaging/cross.py
	@touch $@

dist: dist/.wheel-$(WHEEL) $(if $(filter old,$(WHEEL)),dist/.wheels)  ## sdist and wheels in dist/

dist/nsqc: dist/.wheel-$(WHEEL) packaging/nsqc.spec packaging/early.py packaging/entry.py packaging/unpacked.py
	PATH="$(CURDIR)/$(BIN):$$PATH" $(PACKAGER) -m PyInstaller --noconfirm --log-level ERROR --distpath dist --workpath build/pyinstaller packaging/nsqc.spec
	@touch $@

bin: dist/nsqc                           ## the executable: dist/nsqc, and dist/nsqc-folder, which needs no unpacking
ifneq ($(wildcard $(PORTABLE)/ready),)
	@$(BIN)/python packaging/glibc.py --promised dist/nsqc-folder
else
	@$(BIN)/python packaging/glibc.py dist/nsqc-folder
	@echo "for older systems: make portable, then make bin again"
endif

deb: bin                                 ## Debian packages in dist/
	@command -v dpkg-deb >/dev/null || { echo "a Debian package needs dpkg-deb (Debian: apt-get install dpkg)"; exit 1; }
	@$(BIN)/python packaging/deb.py

rpm: bin                                 ## RPM packages in dist/
	@command -v rpmbuild >/dev/null || { echo "an RPM package needs rpmbuild (Debian: apt-get install rpm)"; exit 1; }
	@$(BIN)/python packaging/rpm.py

image: bin                               ## a container image in dist/, without Docker
	@command -v dpkg-query >/dev/null || { echo "an image takes glibc from Debian's packages, by dpkg-query"; exit 1; }
	@$(BIN)/python packaging/image.py

# SIGNING_KEY: a file with an SSH or minisign key of the releaser. Without it the sums are not signed.
# APT_KEY: an OpenPGP key in gpg's keyring, by fingerprint or mail address. Without it the apt repository is not signed.
SIGNING_KEY ?=
APT_KEY ?=
release: $(VENV)/.packaging $(VENV)/.delivery  ## everything for a version in dist/release; SIGNING_KEY=FILE APT_KEY=ID sign it
	@$(BIN)/python packaging/release.py check
	@command -v lintian >/dev/null || { echo "a release is checked by lintian (Debian: apt-get install lintian)"; exit 1; }
	@$(MAKE) --no-print-directory portable
	@$(MAKE) --no-print-directory bin dist deb rpm image
	lintian --allow-root --fail-on error,warning dist/nsqc_*.deb dist/nsqc-nsq-compat_*.deb
	@$(BIN)/python packaging/manifests.py package
	@$(PACKAGER) packaging/sbom.py
	@$(BIN)/python packaging/release.py collect --apt-key "$(APT_KEY)"
	@test -z "$(SIGNING_KEY)" || $(BIN)/python packaging/release.py sign --key "$(SIGNING_KEY)"
	@test -n "$(SIGNING_KEY)" || echo "dist/release/SHA256SUMS is not signed: make release SIGNING_KEY=FILE"
	@test -n "$(APT_KEY)" || echo "dist/release/apt is not signed: make release APT_KEY=FINGERPRINT"

package-test: $(VENV)/.testing $(VENV)/.delivery bin dist/.wheel-$(WHEEL)  ## executable, wheel, units and Debian package, installed and run
	$(BIN)/python -m pytest tests/packaging $(OLD_TESTS:%=--ignore=%) $(if $(filter here,$(WHEEL)),-m "not old_systems") $(ARGS)

old-test: $(VENV)/.testing deb
	@command -v debootstrap >/dev/null || { echo "an older Debian is made by debootstrap (Debian: apt-get install debootstrap)"; exit 1; }
	@test -d build/$(OLD) || { rm -rf build/$(OLD).new; debootstrap --variant=minbase $(OLD) build/$(OLD).new $(DEBIAN_MIRROR)/debian && mv build/$(OLD).new build/$(OLD); }
	NSQC_TEST_OLD_ROOT=$(CURDIR)/build/$(OLD) $(BIN)/python -m pytest $(OLD_TESTS) $(ARGS)
