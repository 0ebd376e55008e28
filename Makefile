# A front of a few words over Meson, which builds everything; `meson setup build` by hand works too.
#
#   make                 build build/mote; installs nothing on this machine
#   make demo            install what is missing, build, fetch a small model once, answer a prompt
#   make demo-moe        a mixture of experts made of the demo's model: where it overflows F16, and its answer all the same
#   make test            build and run every test but the long ones; fetches the models once
#   make test-offline    all tests that need no network and no real model
#   make test-long       fuzzing (FUZZ_SECONDS=3600 each), valgrind, big models
#   make bench           measure the demo's model
#   make install         DESTDIR= prefix=/usr/local: the program, the library, its header, pkg-config file
#   make format, tidy    format the source; what clang-tidy finds
#   make clean           remove the build folders
#
#   MODEL=FILE           a GGUF file of yours for demo, demo-moe and bench, which then need no network
#   PROMPT=TEXT          what demo and demo-moe ask
#   MOTE_CACHE=DIR       where models are kept ($XDG_CACHE_HOME/mote, ~/.cache/mote)
#   MESON_OPTIONS=...    options of the first `meson setup` (-Dwerror=true, --cross-file FILE)

BUILD = build
PROMPT = Why is the sky blue?
MODEL =
MESON_OPTIONS =
FUZZ_SECONDS = 3600
DESTDIR =
prefix =

PYTHON = python3
NINJA = $(shell command -v ninja || command -v ninja-build || echo samu)
CLANG_FORMAT = clang-format-14
CACHE := $(or $(MOTE_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME)/mote,$(HOME)/.cache/mote))
export MOTE_CACHE := $(CACHE)
# pip is needed until a model is in the cache.
cached = $(shell test -s "$(CACHE)/$(1).gguf" && echo yes)
fetch_group = $(if $(strip $(foreach m,$(1),$(if $(call cached,$(m)),,missing))),fetch)
# Says where a model is, having fetched it if need be.
model = "$$(if [ -n "$(MODEL)" ]; then echo "$(MODEL)"; else $(PYTHON) tools/fetch_model.py smollm2; fi)"

.PHONY: all demo demo-moe test test-offline test-long bench install format format-check tidy clean tests-built

all: $(BUILD)/build.ninja
	@$(NINJA) -C $(BUILD) everything-but-tests

$(BUILD)/build.ninja:
	@sh tools/setup.sh build
	@meson setup $(BUILD) $(MESON_OPTIONS)

demo:
	@sh tools/setup.sh --install build $(if $(MODEL),,$(call fetch_group,smollm2))
	@$(MAKE) --no-print-directory all
	@model=$(model) && echo "\$$ $(BUILD)/mote run $$model -p \"$(PROMPT)\"" >&2 && \
	 $(BUILD)/mote run "$$model" -p "$(PROMPT)"

demo-moe:
	@sh tools/setup.sh --install build tools $(if $(MODEL),,$(call fetch_group,smollm2))
	@$(MAKE) --no-print-directory all
	@model=$(model) && PYTHON=$(PYTHON) sh tools/demo_moe.sh $(BUILD)/mote "$$model" "$(PROMPT)"

tests-built: $(BUILD)/build.ninja
	@meson configure $(BUILD) -Dtests=enabled
	@$(NINJA) -C $(BUILD)

test:
	@sh tools/setup.sh --install build test $(call fetch_group,smollm2 gemma3-270m)
	@$(MAKE) --no-print-directory tests-built
	@$(PYTHON) tools/fetch_model.py smollm2 && $(PYTHON) tools/fetch_model.py gemma3-270m
	@$(PYTHON) tools/run_tests.py $(BUILD) --no-suite long

test-offline:
	@sh tools/setup.sh --install build test
	@$(MAKE) --no-print-directory tests-built
	@$(PYTHON) tools/run_tests.py $(BUILD) --no-suite long --no-suite real

test-long:
	@sh tools/setup.sh --install build test long $(call fetch_group,smollm2 gemma3-270m)
	@$(MAKE) --no-print-directory tests-built
	@$(PYTHON) tools/fetch_model.py smollm2 && $(PYTHON) tools/fetch_model.py gemma3-270m
	@$(PYTHON) tools/run_tests.py $(BUILD)
	@test -d $(BUILD)-mpich || meson setup $(BUILD)-mpich -Dmpi=mpich -Dtests=enabled
	@$(NINJA) -C $(BUILD)-mpich
	@MPIRUN=mpirun.mpich $(PYTHON) tools/run_tests.py $(BUILD)-mpich --suite mpi
	@sh tools/valgrind.sh $(BUILD)
	@sh tools/fuzz.sh $(BUILD)-fuzz $(FUZZ_SECONDS)

bench:
	@sh tools/setup.sh --install build $(if $(MODEL),,$(call fetch_group,smollm2))
	@$(MAKE) --no-print-directory all
	@model=$(model) && $(BUILD)/mote bench "$$model"

install: all
	@$(if $(prefix),meson configure $(BUILD) -Dprefix="$(prefix)" && $(NINJA) -C $(BUILD) everything-but-tests)
	@meson install -C $(BUILD) --no-rebuild $(if $(DESTDIR),--destdir "$(abspath $(DESTDIR))")

format:
	@git ls-files '*.c' '*.h' | xargs $(CLANG_FORMAT) -i

format-check:
	@git ls-files '*.c' '*.h' | xargs $(CLANG_FORMAT) --dry-run -Werror

tidy: $(BUILD)/build.ninja
	@$(PYTHON) tools/tidy.py $(BUILD)

clean:
	@rm -rf build $(BUILD) $(BUILD)-fuzz
