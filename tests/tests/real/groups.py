"""A process comes into a group and leaves it again, and works at once as what it is: argv is a mount."""
import os, sys

MOUNT = sys.argv[1]
USER, TEAM = 1000, 4711
team, own = MOUNT + "/team", MOUNT + "/own"
for path, group in ((team, TEAM), (own, USER)):
    os.mkdir(path)
    os.chown(path, 0, group)
    os.chmod(path, 0o2770)


def act_with(groups):
    os.seteuid(0)
    os.setgroups(groups)
    os.setegid(USER)
    os.seteuid(USER)


def make(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o660))


for i in range(20):
    # What the daemon saw last is a process without the group.
    act_with([])
    make(own + f"/before{i}")
    os.stat(own + f"/before{i}")
    act_with([TEAM])
    make(team + f"/new{i}")
    os.mkdir(team + f"/dir{i}")
    os.rename(team + f"/new{i}", team + f"/dir{i}/moved")
    assert os.stat(team + f"/dir{i}/moved").st_gid == TEAM
    os.unlink(team + f"/dir{i}/moved")
    act_with([])
    try:
        make(team + f"/late{i}")
    except PermissionError:
        continue
    sys.exit("who left the group still works in its directory")
