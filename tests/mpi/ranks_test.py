"""Ranks: processes of one model over MPI, with the bits of one process; and what happens where one of them fails.

usage: ranks_test.py [--all] [TEST...]    --all: every tiny model (some of them otherwise)

MPIRUN names the launcher (mpirun). Without one every test is skipped, and says so.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
sys.dont_write_bytecode = True
from cli import DATA, LLAMA, MODELS, MOTE, CliTest, environment  # noqa: E402

LAUNCHER = os.environ.get("MPIRUN", "mpirun")
ALL = "--all" in sys.argv
SAID = "has not answered"
LIMIT = 10  # seconds in which a failure must end all ranks
HAS = shutil.which(LAUNCHER) is not None and os.environ.get("MOTE_MPI", "yes") == "yes"
WHY = f"no launcher ({LAUNCHER}), or this build has no MPI module"


def is_mpich():
    said = subprocess.run([LAUNCHER, "--version"], capture_output=True, check=False).stdout
    return b"HYDRA" in said


def ranks_environment():
    # A heap that is filled for a test's sake would take longer than a rank may be silent.
    return environment(MALLOC_PERTURB_="0", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_btl_vader_single_copy_mechanism="none", OMPI_MCA_rmaps_base_oversubscribe="1",
                       OMPI_MCA_hwloc_base_binding_policy="none", OMPI_MCA_plm_rsh_agent="/bin/false")


def limit_now():
    """Launchers take long to end a job on a machine that does much else."""
    return LIMIT if os.getloadavg()[0] < 3 * os.cpu_count() else 3 * LIMIT


class RanksTest(CliTest):
    def setUp(self):
        super().setUp()
        if not HAS:
            print(f"skipped: {self.id()}: {WHY}")
            self.skipTest(WHY)

    def launch(self, *commands):
        """mpirun's arguments: a number of ranks and what they run, several times."""
        line = [LAUNCHER]
        for i, (n, command) in enumerate(commands):
            line += [":"] * (i > 0) + ["-n", str(n), *map(str, command)]
        return line

    def run_ranks(self, *commands, timeout=120, stdin=b""):
        return subprocess.run(self.launch(*commands), env=ranks_environment(), capture_output=True, timeout=timeout,
                              input=stdin, check=False)

    def rank_with_pid(self, name, arguments):
        """A command that leaves its process's number in a file."""
        path = self.folder / name
        script = f'echo $$ > {path}.part && mv {path}.part {path} && exec "$@"'
        return path, ["sh", "-c", script, "sh", *arguments]

    def pid_of(self, path, process):
        end = time.monotonic() + 30
        while not path.exists() and time.monotonic() < end and process.poll() is None:
            time.sleep(0.01)
        return int(path.read_text())


class Transport(RanksTest):
    def test_transport(self):
        program, module = os.environ["MPI_TRANSPORT"], os.environ["MPI_MODULE"]
        for n in (2, 3, 5, 8):
            env = ranks_environment() | {"MOTE_MPI_MODULE": module}
            done = subprocess.run(self.launch((n, [program])), env=env, capture_output=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, done)
            self.assertIn(f"{n} ranks, ".encode(), done.stdout)
            print(done.stdout.decode().strip())


class Answers(RanksTest):
    def tokens(self, model):
        return model.with_name(model.name.replace(".gguf", ".golden.gguf"))

    def logits(self, model, tokens, n_ranks, *more):
        out = self.folder / f"{n_ranks}.gguf"
        command = [*MOTE, "logits", model, "--tokens", tokens, "-o", out, "-t", "1", *more]
        done = self.run_ranks((n_ranks, command)) if n_ranks > 1 else subprocess.run(
            list(map(str, command)), env=environment(), capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, (model, n_ranks, done))
        return out.read_bytes()

    def test_logits(self):
        models = sorted(p for folder in ("models", "odd") for p in (DATA / folder).glob("*.gguf")
                        if not p.name.endswith(".golden.gguf"))
        self.assertGreater(len(models), 40)
        for i, model in enumerate(models if ALL else models[::6]):
            tokens = self.tokens(model)
            more = [[], ["--precision", "f32"], ["-b", "1"], ["-b", "7", "--kv", "f32"]][i % 4]
            one = self.logits(model, tokens, 1, *more)
            for n_ranks in (2, 4) if i % 2 == 0 or ALL else (3,):
                self.same(self.logits(model, tokens, n_ranks, *more), one, f"{model.name}: {n_ranks} ranks, {more}")

    def test_split_and_adapters(self):
        folder = DATA / "lora"
        model, tokens = folder / "qwen3moe-tiny.gguf", self.tokens(folder / "qwen3moe-tiny.gguf")
        lora = ["--lora", folder / "qwen3moe-tiny.lora-experts.gguf", "--lora",
                f"{folder / 'qwen3moe-tiny.lora-attention.gguf'}:0.5"]
        one = self.logits(model, tokens, 1, *lora)
        self.same(self.logits(model, tokens, 2, *lora), one)
        self.same(self.logits(model, tokens, 3, *lora, "--split", "5,1,2"), one)

    def test_prompt_on_standard_input_and_sampling(self):
        run = [*MOTE, "run", LLAMA, "--raw", "-n", "20", "--seed", "7", "-t", "1"]
        one = subprocess.run(list(map(str, run)), env=environment(), capture_output=True, input=b"abc", check=True)
        # A launcher may give a rank a terminal, on which mote writes for people.
        many = self.run_ranks((3, ["sh", "-c", '"$@" | cat', "sh", *run]), stdin=b"abc")
        self.assertEqual((many.returncode, many.stdout), (0, one.stdout), many)

    def test_saved_sessions(self):
        """Three ranks save; one process and two ranks go on."""
        cache, prompt = self.folder / "cache.kv", "a prompt of many words, " * 4
        run = [*MOTE, "run", MODELS / "mistral4.gguf", "--raw", "-n", "8", "--seed", "3", "-t", "1"]

        def answer(n_ranks, text, *more):
            line = [*run, "-p", text, *more]
            if n_ranks > 1:
                done = self.run_ranks((n_ranks, ["sh", "-c", '"$@" | cat', "sh", *line]))
            else:
                done = subprocess.run(list(map(str, line)), env=environment(), capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done)
            return done.stdout

        alone = answer(1, prompt)
        answer(3, prompt[:70], "--prompt-cache", cache)
        self.assertTrue(cache.exists())
        for n_ranks in (1, 2, 4):
            self.assertEqual(answer(n_ranks, prompt, "--prompt-cache", cache, "--prompt-cache-ro"), alone, n_ranks)

    def test_commands_without_an_engine_are_rank_0s(self):
        done = self.run_ranks((3, [*MOTE, "version"]))
        self.assertEqual((done.returncode, done.stdout.count(b"numerics")), (0, 1), done)

    def test_without_a_module(self):
        for module in ("/nowhere/mote-mpi.so", MOTE[-1]):
            env = ranks_environment() | {"MOTE_MPI_MODULE": module}
            done = subprocess.run(self.launch((2, [*MOTE, "version"])), env=env, capture_output=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(b"this mote has no MPI module", done.stderr)

    def test_the_launcher_of_another_mpi(self):
        env = {k: v for k, v in environment().items() if not k.startswith(("OMPI_", "PMIX_", "PMI_"))}
        done = subprocess.run([*MOTE, "version"], env=env | {"PMI_SIZE": "2"} if not is_mpich() else
                              env | {"OMPI_COMM_WORLD_SIZE": "2"}, capture_output=True, check=False)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(b"do not find each other", done.stderr)
        self.assertIn(b"MPICH" if is_mpich() else b"Open MPI", done.stderr)

    def test_wrong_usage(self):
        done = self.run_ranks((2, [*MOTE, "run", LLAMA, "-p", "a", "--devices", "3"]))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"each of 2 ranks is one device", done.stderr)
        done = self.run_ranks((9, [*MOTE, "run", LLAMA, "-p", "a"]))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"9 ranks: a mesh has at most 8 devices", done.stderr)


class Failures(RanksTest):
    # Long enough for anything to happen to it.
    BENCH = [*MOTE, "bench", LLAMA, "-t", "1", "-p", "0", "-n", "900", "-r", "1000"]

    def ended(self, process, started):
        out, err = process.communicate(timeout=LIMIT + 20)
        self.assertLess(time.monotonic() - started, limit_now(), (out, err))
        return process.returncode, err + out

    def break_rank(self, number, settings=None):
        path, command = self.rank_with_pid("pid", self.BENCH)
        with subprocess.Popen(self.launch((1, self.BENCH), (1, command), (1, self.BENCH)),
                              env=ranks_environment() | (settings or {}), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            pid = self.pid_of(path, process)
            time.sleep(1.5)
            started = time.monotonic()
            os.kill(pid, number)
            try:
                code, said = self.ended(process, started)
                if settings is None:  # else it is the launcher's, which was told not to care
                    self.assertNotEqual(code, 0)
                return said
            finally:
                for end in (signal.SIGCONT, signal.SIGKILL):
                    try:
                        os.kill(pid, end)
                    except ProcessLookupError:
                        pass

    def test_a_rank_that_hangs(self):
        err = self.break_rank(signal.SIGSTOP)
        self.assertIn(b"rank 1 (on ", err)
        self.assertIn(SAID.encode(), err)

    def test_a_rank_that_dies(self):
        # The launcher notices first and ends the others. MPICH's knows no ranks, but processes.
        self.assertIn(b"Killed (signal 9)" if is_mpich() else b"rank 1", self.break_rank(signal.SIGKILL))

    def test_a_rank_that_dies_unnoticed_by_the_launcher(self):
        if is_mpich():
            print("skipped: a rank that dies unnoticed by the launcher: MPICH's always notices")
            self.skipTest("MPICH's launcher always notices")
        err = self.break_rank(signal.SIGKILL, {"OMPI_MCA_orte_enable_recovery": "1"})
        self.assertIn(b"rank 1 (on ", err)
        self.assertIn(SAID.encode(), err)

    def test_a_rank_without_memory(self):
        if shutil.which("prlimit") is None:
            print("skipped: a rank without memory: no prlimit")
            self.skipTest("no prlimit")
        started = time.monotonic()
        run = [*MOTE, "run", LLAMA, "-p", "a", "-n", "4", "-t", "1", "-c", "16000000", "--force"]
        done = self.run_ranks((1, run), (1, ["prlimit", "--as=1500000000", *run]))
        self.assertLess(time.monotonic() - started, limit_now())
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"rank 1 (on ", done.stderr)
        self.assertIn(b"out of memory", done.stderr)

    def test_ranks_of_other_versions(self):
        program, module = os.environ["MPI_TRANSPORT"], os.environ["MPI_MODULE"]
        env = ranks_environment() | {"MOTE_MPI_MODULE": module}
        done = subprocess.run(self.launch((1, [program, "stranger"]), (2, [*MOTE, "run", LLAMA, "-p", "a"])), env=env,
                              capture_output=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0)
        # Of two that say the same the first is heard, and only from rank 0.
        self.assertEqual(done.stderr.count(b"rank 1 (on "), 1, done)
        self.assertIn(b"but rank 0 has mote 9.9.9 (numerics 99, protocol 99, another build)", done.stderr)

    def other_file(self, make, original=LLAMA, arguments=()):
        """Rank 1 sees another file under the same path."""
        model, other = self.folder / "model.gguf", self.folder / "other.gguf"
        model.write_bytes(original.read_bytes())
        make(other)
        run = [*MOTE, "run", *(arguments or [model]), "-p", "a", "-n", "4", "-t", "1"]
        within = ["unshare", "-m", "sh", "-c", f'mount --bind {other} {model} && exec "$@"', "sh"]
        probe = subprocess.run([*within, "true"], capture_output=True, check=False)
        if probe.returncode != 0:
            print(f"skipped: another file on a rank: {probe.stderr.decode().strip()}")
            self.skipTest(f"no mount namespaces here: {probe.stderr.decode().strip()}")
        done = self.run_ranks((1, run), (1, [*within, *run]))
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count(b"rank 1 (on "), 1, done)
        return done.stderr

    def test_a_file_of_another_length(self):
        self.assertIn(b"bytes, rank 0's has",
                      self.other_file(lambda path: path.write_bytes(LLAMA.read_bytes() + b"\0" * 64)))

    def test_a_file_with_another_header(self):
        def make(path):
            path.write_bytes(LLAMA.read_bytes().replace(b"<|bos|>", b"<|bOs|>", 1))
        self.assertIn(b"the hash of its header", self.other_file(make))

    def test_a_file_with_other_weights(self):
        def make(path):
            size = len(LLAMA.read_bytes())
            path.write_bytes(LLAMA.read_bytes()[:size // 2] + bytes(size - size // 2))
        self.assertIn(b"the hash of some of its weights", self.other_file(make))

    def test_an_adapter_with_other_weights(self):
        folder = DATA / "lora"
        adapter = folder / "qwen3moe-tiny.lora-attention.gguf"

        def make(path):
            size = len(adapter.read_bytes())
            path.write_bytes(adapter.read_bytes()[:size // 2] + bytes(size - size // 2))
        said = self.other_file(make, adapter, [folder / "qwen3moe-tiny.gguf", "--lora", self.folder / "model.gguf"])
        self.assertIn(b"the hash of some of its weights", said)

    def test_a_rank_without_the_file(self):
        self.assertIn(b"is empty", self.other_file(lambda path: path.write_bytes(b"")))


if __name__ == "__main__":
    unittest.main(argv=[a for a in sys.argv if a != "--all"])
