# Nacre: `make up` gives a mounted file system, `make test` checks everything.

DIR     ?= .nacre
MNT     ?= ./mnt
OSTS    ?= 4
FSNAME  ?= nacre
SEEDS   ?= 500
FIRST   ?= 1
OPS     ?= 2000
SECONDS ?= 60
MINUTES ?= 30

TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
BIN    := $(TARGET)/release
NACRE  := $(BIN)/nacre
LINKS  := nacred lfs lctl mkfs.nacre tunefs.nacre mount.nacre mount.fuse.nacre

.PHONY: help build up down wipe status test check lint sim fuzz thrash campaign upgrade-drill deb static clean

help:
	@echo 'make up      build, then start MGT + MDT + $(OSTS) OSTs and mount them at $(MNT)'
	@echo 'make down    stop it, keep the data      make wipe    remove it      make status'
	@echo 'make test    everything that can be checked here'
	@echo 'make check   what to run before a commit: a few minutes on a tree that was built before'
	@echo 'make lint    formatting, clippy, the rules of the house (cargo xtask tidy)'
	@echo 'make sim SEEDS=500 FIRST=1 OPS=2000      whole cluster in one thread, with crashes'
	@echo 'make fuzz SECONDS=60                     every decoder, so long each'
	@echo 'make thrash MINUTES=30                   servers of network namespaces fail again and again under load'
	@echo 'make deb                                 Debian packages, in $(TARGET)/debian (docs/install.md)'
	@echo 'make static                              a client in one program, for hosts where nothing may be installed (docs/install.md)'
	@echo 'make campaign                            what an issue ends with: two hours more of what the test command samples'
	@echo 'make upgrade-drill FROM=COMMIT           a rolling upgrade from that commit to this one under load, and back'
	@echo 'Variables: DIR=$(DIR) MNT=$(MNT) OSTS=$(OSTS) FSNAME=$(FSNAME)'

build:
	@scripts/install-deps.sh build
	cargo build --release -p server
	@cd $(BIN) && objcopy --only-keep-debug nacre nacre.debug && \
	  objcopy --strip-unneeded --add-gnu-debuglink=nacre.debug nacre nacre.stripped && mv -f nacre.stripped nacre
	@for l in $(LINKS); do ln -sf nacre $(BIN)/$$l; done
	@echo "Programs: $(BIN)/{nacre,$$(echo $(LINKS) | tr ' ' ',')}, symbols beside them in nacre.debug"

up: build
	@scripts/install-deps.sh run
	@mkdir -p $(MNT)
	@$(NACRE) up --dir $(DIR) --mount $(MNT) --osts $(OSTS) --fsname $(FSNAME) --dashboard

down:
	@$(NACRE) down --dir $(DIR)

status:
	@$(NACRE) status --dir $(DIR)

wipe:
	@$(NACRE) wipe --dir $(DIR)

lint:
	@scripts/test.sh lint

test:
	@scripts/test.sh all

check:
	@scripts/test.sh check

sim:
	cargo run --release -p sim --bin nacre-sim -- --seeds $(SEEDS) --first $(FIRST) --ops $(OPS)

fuzz:
	scripts/fuzz.sh $(SECONDS)

# A third of the time the test moves targets itself, a third Pacemaker, a third the controllers on etcd. Last lines of each part: times until the load went on;
# failovers, faults, application errors, wrong bytes.
thrash: build
	@scripts/install-test-deps.sh
	NACRE_THRASH_MINUTES=$$(( ($(MINUTES) + 2) / 3 )) cargo test --release --quiet -p tests --test real -- --test-threads=1 --nocapture failover:: pacemaker::pacemaker_moves controller::controllers

campaign:
	@scripts/campaign.sh

upgrade-drill:
	@scripts/upgrade-drill.sh '$(FROM)'

deb: build
	@scripts/package-deb.sh

static:
	@scripts/package-static.sh

clean:
	cargo clean
