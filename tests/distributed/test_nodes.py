"""Processes on different nodes: they share no memory, have other host names, and messages go over TCP."""

import os
import shutil
import subprocess

import pytest

from tests.distributed.launch import mpiexec, needs_mpi, run

# Two network namespaces, a cable between them.
NETWORK = """#!/bin/sh
set -e
mount -t tmpfs none /run
for n in 1 2; do ip netns add node$n; done
ip link add v1 netns node1 type veth peer name v2 netns node2
for n in 1 2; do
    ip -n node$n addr add 10.0.0.$n/24 dev v$n
    ip -n node$n link set v$n up
    ip -n node$n link set lo up
done
exec ip netns exec node1 "$@"
"""
# What MPI calls as "ssh -x HOST COMMAND": the command in the host's namespace, with processes and memory of its own.
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
node=node${1##*.}
shift
exec ip netns exec $node unshare -i -m -u -p --fork --kill-child \\
    sh -c "hostname $node; mount -t tmpfs none /dev/shm; $*"
"""


@pytest.fixture
def nodes(tmp_path):
    """A launcher on two nodes, two processes on each, by MPICH's options."""
    network, ssh = tmp_path / "network", tmp_path / "ssh"
    for path, text in ((network, NETWORK), (ssh, SSH)):
        path.write_text(text)
        path.chmod(0o755)
    around = ["unshare", "-n", "-m", *([] if os.geteuid() == 0 else ["-r"]), str(network)]
    version = subprocess.run([mpiexec(), "--version"], capture_output=True, text=True, check=False).stdout
    known = all(map(shutil.which, ("ip", "unshare"))) and "HYDRA" in version
    if not known or subprocess.run([*around, "true"], check=False).returncode:
        pytest.skip("network namespaces are absent, or MPI is not MPICH")
    hosts = ["-hosts", "10.0.0.1,10.0.0.2", "-localhost", "10.0.0.1", "-ppn", "2"]
    return around, [*hosts, "-launcher", "ssh", "-launcher-exec", str(ssh)]


@needs_mpi
@pytest.mark.parametrize(("module", "case"), [("operator_cases", "overlapped"), ("solver_cases", "on_nodes")])
def test_on_two_nodes(module, case, nodes):
    run(4, f"tests.distributed.{module}", case, nodes=nodes)


@needs_mpi
def test_without_shared_memory():
    """Where namespaces are absent too; other MPIs ignore MPICH's variables."""
    alone = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
    run(2, "tests.distributed.operator_cases", "overlapped", environment=alone)
