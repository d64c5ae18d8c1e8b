"""llama.cpp's own server on a GGUF file: `python -m tests.lab.proof.llamacpp_server MODEL PORT SLOTS CONTEXT`.

It runs until it is ended.
"""

import signal
import sys

import xllamacpp


def main() -> None:
    """Two threads, `SLOTS` sequences at once of `CONTEXT` tokens each, metrics on, no cache between requests."""
    model, port, slots, context = sys.argv[1], *map(int, sys.argv[2:])
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.port = port
    params.n_parallel, params.n_ctx = slots, slots * context
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    params.endpoint_metrics = True
    params.cache_ram_mib = 0
    params.kv_unified = params.fit_params = False
    server = xllamacpp.Server(params)  # it serves as long as this is held
    signal.pause()
    del server


if __name__ == "__main__":
    main()
