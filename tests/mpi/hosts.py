"""Two hosts on this machine: network namespaces joined by a wire that is a program, which delays packets and can be cut.

    with Hosts(delay=0.001) as hosts:
        hosts.run(0, ["mpirun", …])       on the first host; hosts.open_mpi() tells its launcher of both
        hosts.wire.cut()

Root is needed, and /dev/net/tun; WhyNot says what else is missing. The kernel's own delay (tc netem) is not in every
kernel, and this needs nothing of it.
"""
import collections
import fcntl
import os
import select
import shutil
import struct
import subprocess
import threading
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU = 9000
DEVICE = "wire0"


class WhyNot(Exception):
    """Why no hosts can be made here."""


def ip(*arguments):
    try:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise WhyNot("there is no program ip (Debian: iproute2)") from None
    except subprocess.CalledProcessError as error:
        raise WhyNot(f"ip {' '.join(arguments)}: {error.stderr.strip()}") from None


class Wire:
    """Two tunnels, and a thread that carries packets from each to the other, `delay` seconds later."""

    def __init__(self, names, delay):
        self.delay = delay
        self.whole = True
        self.ends = []
        self.waiting = [collections.deque(), collections.deque()]  # (when to deliver, packet), of each end
        self.stop_read, self.stop_write = os.pipe()
        self.thread = threading.Thread(target=self.carry, daemon=True)
        try:
            for name in names:
                end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
                self.ends.append(end)
                fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
        except OSError as error:
            for end in self.ends:
                os.close(end)
            raise WhyNot(f"no tunnels: /dev/net/tun: {error.strerror}") from None

    def cut(self):
        self.whole = False

    def carry(self):
        while True:
            times = [queue[0][0] for queue in self.waiting if queue]
            timeout = max(0, min(times) - time.monotonic()) if times else None
            ready, _, _ = select.select([*self.ends, self.stop_read], [], [], timeout)
            if self.stop_read in ready:
                return
            now = time.monotonic()
            for i, end in enumerate(self.ends):
                if end in ready:
                    self.take(end, self.waiting[1 - i], now + self.delay)
            for end, queue in zip(self.ends, self.waiting):
                while queue and queue[0][0] <= now:
                    self.give(end, queue.popleft()[1])

    def take(self, end, queue, when):
        try:
            while True:
                packet = os.read(end, 65536)
                if self.whole:
                    queue.append((when, packet))
        except (BlockingIOError, OSError):
            pass

    def give(self, end, packet):
        try:
            if self.whole:
                os.write(end, packet)
        except OSError:
            pass  # the queue is full: a packet is lost, as on any wire

    def close(self):
        os.write(self.stop_write, b"x")
        if self.thread.is_alive():
            self.thread.join()
        for end in (*self.ends, self.stop_read, self.stop_write):
            os.close(end)


class Hosts:
    def __init__(self, delay=0.0):
        unique = os.getpid() % 100000
        self.names = [f"mote-{unique}-{i}" for i in range(2)]
        self.addresses = [f"10.{unique >> 8 & 127 | 64}.{unique & 255}.{i + 1}" for i in range(2)]
        self.delay = delay
        self.made = []
        self.wire = None

    def __enter__(self):
        if os.geteuid() != 0:
            raise WhyNot("network namespaces need root")
        if shutil.which("unshare") is None:
            raise WhyNot("there is no program unshare (Debian: util-linux)")
        try:
            tunnels = [f"{name}t"[-15:] for name in self.names]
            self.wire = Wire(tunnels, self.delay)
            for name, tunnel, address in zip(self.names, tunnels, self.addresses):
                ip("netns", "add", name)
                self.made.append(name)
                ip("link", "set", tunnel, "netns", name, "name", DEVICE)
                ip("-n", name, "address", "add", f"{address}/24", "dev", DEVICE)
                ip("-n", name, "link", "set", DEVICE, "mtu", str(MTU), "up")
                ip("-n", name, "link", "set", "lo", "up")
            self.wire.thread.start()
        except WhyNot:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.made:
            self.end_all(name)
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        if self.wire is not None:
            self.wire.close()

    def pids(self, name):
        done = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True, text=True)
        return [int(word) for word in done.stdout.split()]

    def end_all(self, name):
        for pid in self.pids(name):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass

    def on(self, host, command):
        """The command that runs a command on a host."""
        script = f'hostname {self.names[host]} && exec "$@"'
        return ["ip", "netns", "exec", self.names[host], "unshare", "-u", "sh", "-c", script, "sh", *map(str, command)]

    def write_agent(self, path):
        """A program that runs a command on the host of an address, as ssh does."""
        cases = "\n".join(f"{address}) host={name} ;;" for name, address in zip(self.names, self.addresses))
        path.write_text(f"""#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
case $1 in
{cases}
*) echo "no host $1" >&2; exit 1 ;;
esac
shift
exec ip netns exec $host unshare -u sh -c "hostname $host; $*"
""")
        path.chmod(0o755)
        return path

    def open_mpi(self, launcher, agent):
        network = self.addresses[0].rsplit(".", 1)[0] + ".0/24"
        return [launcher, "--mca", "plm_rsh_agent", agent, "--mca", "oob_tcp_if_include", network,
                "--mca", "btl_tcp_if_include", network, "--mca", "btl", "tcp,self"]
