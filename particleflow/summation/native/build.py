"""The native library: built once on the machine it runs on, kept in a folder only its user can write, and registered.

The key of a library is a hash of everything that decides its code: sources, flags, compiler, processor and jaxlib. It
is compiled under a temporary name and renamed, under an exclusive lock, so that processes that start together build it
once and none loads an incomplete file. Where it cannot be had (no compiler, a broken one, a folder that others can
write), `library` returns the reason, and sums go through XLA; a failed build is remembered and not tried again until
something of the key changes.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from particleflow._support.default_device import computing_platform

SWITCH = "PARTICLEFLOW_NATIVE"
_OFF = ("0", "off", "no", "false")
_HERE = Path(__file__).parent
_FLAGS = ("-std=gnu++17", "-O2", "-fPIC", "-fno-math-errno", "-ffp-contract=fast", "-w", "-pthread")
_TUNED = {"x86_64": "-march=native", "AMD64": "-march=native", "aarch64": "-mcpu=native", "arm64": "-mcpu=native"}
_COMPILERS = ("c++", "g++", "clang++")
_COMPILER_SECONDS = 120.0  # after which a compiler is stopped
TARGETS = ("moments", "adjoint", "far")


class Library(NamedTuple):
    """The library of this machine: its file and key, or no file and the reason why there is none."""

    path: Path | None
    reason: str
    key: str = ""

    @property
    def description(self) -> str:
        """The key, or the reason why there is no library: the same text for the same code."""
        return self.key if self.path is not None else f"none ({self.reason})"


def target(name: str, key: str) -> str:
    """The XLA name of a function of the library with this key: a cached program never calls another library."""
    return f"particleflow_{name}_{key}"


def _say(text: str) -> None:
    """Print a sentence to stderr, if it is a terminal."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


_found: list[Library] = []  # the library of this process, once it was looked for


def library(say: Callable[[str], None] = _say) -> Library:
    """The library for this process, built if need be and registered with XLA; `PARTICLEFLOW_NATIVE=0` turns it off.

    `say` is called with a sentence before a build begins, which takes some seconds.
    """
    if os.environ.get(SWITCH, "").strip().lower() in _OFF:
        return Library(None, f"turned off by {SWITCH}={os.environ[SWITCH]}")
    if computing_platform() != "cpu":
        return Library(None, f"it is for processors, and JAX computes on {computing_platform()}")
    if not _found:
        _found.append(_find(say))
    return _found[0]


def _find(say: Callable[[str], None]) -> Library:
    """The library, built if there is a compiler and none was built before; else the reason why there is none."""
    compiler = _compiler()
    if compiler is None:
        return Library(None, f"no C++ compiler found (looked for {', '.join(_COMPILERS)} and CXX)")
    try:
        key = _key(compiler)
        path = _built(compiler, key, folder(), say)
    except (OSError, subprocess.SubprocessError) as error:
        return Library(None, str(error).strip() or type(error).__name__)
    return _registered(path, key)


def folder() -> Path:
    """Where libraries are kept: the platform's cache folder, `particleflow/native` in it."""
    if sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "particleflow" / "native"


def _compiler() -> str | None:
    """The compiler of the environment variable CXX, or the first usual one on the path."""
    wish = os.environ.get("CXX", "").split()[:1]
    found = (shutil.which(name) for name in (*wish, *_COMPILERS))
    return next((path for path in found if path), None)


def _sources() -> list[Path]:
    """The headers and sources of the library, in one order."""
    return sorted(path for path in _HERE.iterdir() if path.suffix in (".h", ".cc"))


def _processor() -> str:
    """What the compiler tunes for: the processor's model and features."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
    return platform.processor() + platform.machine()


def _key(compiler: str) -> str:
    """A hash of all that decides the code of a library."""
    from importlib.metadata import version as installed

    version = subprocess.run(
        [compiler, "--version"], capture_output=True, timeout=_COMPILER_SECONDS, check=False
    ).stdout
    decisive = [path.name.encode() + path.read_bytes() for path in _sources()]
    texts = (*_flags(), compiler, _processor(), installed("jaxlib"), platform.platform())
    decisive += [version, *(text.encode() for text in texts)]
    return hashlib.sha256(b"\0".join(decisive)).hexdigest()[:20]


def _flags() -> tuple[str, ...]:
    """The compiler's flags: tuned to this processor, without which sums take four to six times as long."""
    tuned = _TUNED.get(platform.machine())
    return _FLAGS if tuned is None else (*_FLAGS, tuned)


def _built(compiler: str, key: str, place: Path, say: Callable[[str], None]) -> Path:
    """The library's path, compiled now unless it was before; raises OSError with the reason if it cannot be."""
    _make_private(place)
    path, failure = place / f"moments-{key}.so", place / f"moments-{key}.failed"
    if not path.exists():
        with _locked(place / "lock"):
            if failure.exists():
                raise OSError(f"{failure.read_text(encoding='utf-8')} (remove {failure} to try again)")
            if not path.exists():
                say("building the native sum, once")
                _compile(compiler, path, failure)
    _check_private(path)
    return path


def _make_private(place: Path) -> None:
    """Make a folder that only its user can write: what is loaded from it runs with the rights of its user."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.mkdir(mode=0o700, exist_ok=True)
    _check_private(place)
    for parent in place.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise PermissionError(f"all users can write to {parent}, so nothing is loaded from {place}")


def _check_private(path: Path) -> None:
    """Raise unless a file or folder is our user's, is no link, and cannot be written by other users."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"others may have written {path}, so it is not loaded")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Exclusive build lock; released if its holder dies."""
    import fcntl

    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _compile(compiler: str, path: Path, failure: Path) -> None:
    """Compile four objects side by side, link them, and rename the library to its place when it is whole."""
    import jax

    with tempfile.TemporaryDirectory(dir=path.parent, prefix="building-") as work:
        parts = {"double": ["-DPRECISION=double", "precision.cc"], "float": ["-DPRECISION=float", "precision.cc"]}
        parts["far"] = ["far.cc"]
        parts["ffi"] = ["-O1", f"-I{jax.ffi.include_dir()}", "ffi.cc"]
        commands = [
            [compiler, *_flags(), *options, str(_HERE / source), "-c", "-o", f"{work}/{name}.o"]
            for name, (*options, source) in parts.items()
        ]
        whole = Path(work) / "moments.so"
        objects = [f"{work}/{name}.o" for name in parts]
        error = _run(commands) or _run([[compiler, *_flags(), "-shared", "-o", str(whole), *objects]])
        if error is None:
            whole.chmod(0o500)
            whole.replace(path)
        else:
            failure.write_text(f"{Path(compiler).name} could not build it: {error}", encoding="utf-8")
            raise OSError(failure.read_text(encoding="utf-8"))


def _run(commands: list[list[str]]) -> str | None:
    """Run commands side by side; None if all succeed, else the first line that reports an error."""
    environment = os.environ | {"LC_ALL": "C"}
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, env=environment, errors="replace", **options) for command in commands]
    reported = None
    for process in running:
        try:
            errors = process.communicate(timeout=_COMPILER_SECONDS)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            errors = process.communicate()[1] or f"it took longer than {_COMPILER_SECONDS:.0f} s"
        if process.returncode:
            lines = [line for line in errors.splitlines() if line.strip()]
            complaint = next((line for line in lines if "error" in line), (lines or ["it failed without a word"])[0])
            reported = reported or complaint[:300]
    return reported


def _registered(path: Path, key: str) -> Library:
    """Load the library and register its functions with XLA."""
    import jax

    found = Library(path, "built for this processor", key)
    try:
        code = ctypes.CDLL(str(path))
        for name in TARGETS:
            handler = jax.ffi.pycapsule(getattr(code, f"particleflow_{name}"))
            jax.ffi.register_ffi_target(target(name, key), handler, platform="cpu")
    except (OSError, AttributeError) as error:
        return Library(None, f"{path} cannot be loaded: {error}")
    return found
