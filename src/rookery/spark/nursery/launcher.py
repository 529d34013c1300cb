"""The program that Spark starts as its Python: it requests a process from the nursery and represents it until it ends.

The script of `start` runs it as `python -I -S launcher.py <socket> <plain Python> <arguments>...`. It runs a dozen
times at the start of a query, and so imports only built-in modules: `socket` and `signal` would triple its start time.
On any failure before the nursery has returned a process, it replaces itself with the plain Python.
"""

import _signal  # type: ignore[import-not-found]  # it has no stubs
import _socket
import marshal
import os
import sys

_FILE_BYTES = 4


def main(address: str, plain: str, *arguments: str) -> int:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    process = _request_process(connection, address, arguments)
    if process is None:
        connection.close()
        os.execv(plain, [plain, *arguments])
    _signal.signal(_signal.SIGTERM, lambda *_: _terminate(process))
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    exit_code = connection.recv(1)
    if exit_code:
        return exit_code[0]
    _wait_without_nursery(process)
    return 1


def _request_process(connection: _socket.socket, address: str, arguments: tuple[str, ...]) -> int | None:
    """Send arguments, variables, directory and standard files to the nursery.

    Returns the pidfd of the new process, or None if the nursery did not start one.
    """
    try:
        connection.connect(address)
        request = marshal.dumps((arguments, dict(os.environ), os.getcwd()))
        files = b"".join(file.to_bytes(_FILE_BYTES, sys.byteorder) for file in range(3))
        size = len(request).to_bytes(4, "big")
        connection.sendmsg([size], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
        connection.sendall(request)
        _, given, _, _ = connection.recvmsg(1, _socket.CMSG_SPACE(_FILE_BYTES))
    except OSError:
        return None
    return int.from_bytes(given[0][2], sys.byteorder) if given else None


def _terminate(process: int) -> None:
    try:
        _signal.pidfd_send_signal(process, _signal.SIGTERM)
    except ProcessLookupError:
        # The process has already ended; the nursery is about to send its exit code.
        return


def _wait_without_nursery(process: int) -> None:
    """Wait for the end of the process after the nursery was killed. Its exit code is lost."""
    import select

    ends = select.poll()
    ends.register(process)
    ends.poll()


if __name__ == "__main__":
    # Skip the shutdown of the interpreter: there is nothing to clean up.
    os._exit(main(*sys.argv[1:]))
